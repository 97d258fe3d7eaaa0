#!/usr/bin/env bash
# Builds the real control plane (kube-apiserver, kube-scheduler, kube-controller-manager,
# kubectl, etcd, kwok) from Go modules into a cache folder outside the checkout.
#
#   hack/control-plane/build.sh            build what is missing, print the folder on stdout
#   hack/control-plane/build.sh --print    print the folder, build nothing
#   hack/control-plane/build.sh --check    see whether it can be built here, and build nothing: 3 where Go is missing or too old
#   MUSTER_KUBERNETES=v1.36.3 hack/control-plane/build.sh
#                                          the same for another version of Kubernetes
#   MUSTER_KUBERNETES=v1.36.3 hack/control-plane/build.sh --scheduler
#                                          build no more of it than kube-scheduler
#
# The folder is keyed by the content of the module files, so a change of version builds
# again and an unchanged one costs nothing. Progress goes to stderr.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${MUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster}/control-plane"
pinned="$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' "$here/kubernetes/go.mod")"
kubernetes_version="${MUSTER_KUBERNETES:-$pinned}"
digest() { if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi; }
if [ "$kubernetes_version" = "$pinned" ]; then
  kubernetes="$here/kubernetes"
  key="$(cat "$here"/kubernetes/go.{mod,sum} "$here"/kwok/go.{mod,sum} | digest | cut -c1-12)"
else
  # Module files of another version are made from its own, once, in the cache.
  kubernetes="$cache/modules/$kubernetes_version"
  key="$(cat "$here"/kwok/go.{mod,sum} | digest | cut -c1-12)"
fi
out="$cache/$kubernetes_version-$key"

if [ "${1:-}" = "--print" ]; then
  echo "$out"
  exit 0
fi

say() { echo "control plane: $*" >&2; }

# Whether everything that was asked for is built.
complete() { [ -e "$out/complete" ] || { [ "$only" = kube-scheduler ] && [ -x "$out/kube-scheduler" ]; }; }
only=""
if [ "${1:-}" = "--scheduler" ]; then
  only=kube-scheduler
fi

if complete; then
  echo "$out"
  exit 0
fi

if ! command -v go >/dev/null 2>&1; then
  say "Go is missing: install Go 1.26 or newer (https://go.dev/dl) to build the real Kubernetes control plane"
  exit 3
fi
# "go1.26.8", "go1.27-abcdef X:…", "devel go1.28-…": the number alone.
go_version="$(GOTOOLCHAIN=local go env GOVERSION | sed -n 's/.*go\([0-9][0-9.]*\).*/\1/p')"
if ! printf '1.26\n%s\n' "${go_version:-0}" | sort -V | head -n 1 | grep -qx 1.26; then
  say "Go ${go_version:-of an unknown version} is too old: Kubernetes $kubernetes_version needs Go 1.26 or newer"
  exit 3
fi

if [ "${1:-}" = "--check" ]; then
  exit 0
fi

mkdir -p "$out"
# One builder at a time; a second one waits and then finds the work done. Where flock is missing
# both build, into files of their own.
if command -v flock >/dev/null 2>&1; then
  exec 9>"$cache/.lock"
  if ! flock -n 9; then
    say "another build is running in $cache, waiting for it"
    flock 9
  fi
fi
if complete; then
  echo "$out"
  exit 0
fi

if [ -n "$only" ]; then
  say "building $only $kubernetes_version into $out (once, about 3 minutes on two cores)"
else
  say "building Kubernetes $kubernetes_version, etcd and kwok into $out (once, about 6 minutes on two cores)"
fi
started=$SECONDS
trap 'rm -f "$out"/.*.$$.partial' EXIT
if [ ! -e "$kubernetes/go.sum" ]; then
  say "resolving the modules of Kubernetes $kubernetes_version …"
  mkdir -p "$kubernetes"
  (
    cd "$kubernetes"
    upstream="$(go mod download -json "k8s.io/kubernetes@$kubernetes_version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')"
    # k8s.io/kubernetes names its staging modules as v0.0.0 with local replaces.
    staging="v0.${kubernetes_version#v1.}"
    etcd="$(awk '$1 == "go.etcd.io/etcd/client/v3" { print $2; exit }' "$upstream")"
    {
      echo "module muster.dev/hack/control-plane/kubernetes"
      echo
      awk '$1 == "go" { print; exit }' "$upstream"
      echo
      sed -n '/^tool (/,/^)/p' "$here/kubernetes/go.mod"
      echo
      echo "require k8s.io/kubernetes $kubernetes_version"
      echo "require go.etcd.io/etcd/server/v3 $etcd"
      echo
      sed -n "s|^[[:space:]]*\(k8s.io/[^ ]*\) => ./staging/.*|replace \1 => \1 $staging|p" "$upstream"
    } >go.mod
    go mod tidy
  ) >&2 9>&- || { rm -rf "$kubernetes"; exit 1; }
fi
build() { # build MODULE_FOLDER BINARY PACKAGE
  if [ -x "$out/$2" ] || { [ -n "$only" ] && [ "$2" != "$only" ]; }; then
    return
  fi
  local from=$SECONDS
  say "building $2 …"
  # A binary appears under its name only when it is whole. What -s -w would leave out of it is not made for its packages either.
  (cd "$1" && GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -trimpath -gcflags=all=-dwarf=false \
    -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes_version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(echo "$kubernetes_version" | cut -d. -f2)" \
    -o "$out/.$2.$$.partial" "$3") >&2 9>&-
  mv "$out/.$2.$$.partial" "$out/$2"
  say "built $2 in $((SECONDS - from)) s"
}
build "$kubernetes" etcd go.etcd.io/etcd/server/v3
build "$kubernetes" kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
build "$kubernetes" kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler
build "$kubernetes" kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager
build "$kubernetes" kubectl k8s.io/kubernetes/cmd/kubectl
build "$here/kwok" kwok sigs.k8s.io/kwok/cmd/kwok
if [ -z "$only" ]; then
  touch "$out/complete"
fi
say "done in $((SECONDS - started)) s"
echo "$out"
