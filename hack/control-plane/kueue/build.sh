#!/usr/bin/env bash
# Builds the real Kueue from its Go module into a cache folder outside the checkout, with the definitions of its kinds
# and of its webhooks beside the binary. Only the end-to-end tests of Kueue need it.
#
#   hack/control-plane/kueue/build.sh      build what is missing, print the folder on stdout
#
# Progress goes to stderr. Ends with 3 where Go is missing.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${MUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster}/control-plane"
version="$(awk '$1 == "sigs.k8s.io/kueue" { print $2; exit } $1 == "require" && $2 == "sigs.k8s.io/kueue" { print $3; exit }' "$here/go.mod")"
digest() { if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi; }
out="$cache/kueue-$version-$(cat "$here"/go.{mod,sum} | digest | cut -c1-12)"
say() { echo "kueue: $*" >&2; }

if [ -e "$out/complete" ]; then
  echo "$out"
  exit 0
fi
if ! command -v go >/dev/null 2>&1; then
  say "Go is missing: install Go 1.26 or newer (https://go.dev/dl) to build the real Kueue"
  exit 3
fi
mkdir -p "$out"
# One builder at a time; a second one waits and then finds the work done.
if command -v flock >/dev/null 2>&1; then
  exec 9>"$cache/.lock-kueue"
  flock 9
fi
if [ -e "$out/complete" ]; then
  echo "$out"
  exit 0
fi

say "building Kueue $version into $out (once, about 4 minutes on two cores)"
started=$SECONDS
trap 'rm -f "$out"/.*.$$.partial' EXIT
cd "$here"
export GOFLAGS=-mod=readonly
CGO_ENABLED=0 go build -trimpath -gcflags=all=-dwarf=false -ldflags "-s -w" -o "$out/.kueue.$$.partial" sigs.k8s.io/kueue/cmd/kueue >&2 9>&-
module="$(go list -m -f '{{.Dir}}' sigs.k8s.io/kueue)"
mkdir -p "$out/crds"
cp -f "$module"/config/components/crd/bases/*.yaml "$out/crds/"
cp -f "$module"/config/components/webhook/manifests.yaml "$out/webhooks.yaml"
chmod -R u+w "$out"
mv "$out/.kueue.$$.partial" "$out/kueue"
touch "$out/complete"
say "done in $((SECONDS - started)) s"
echo "$out"
