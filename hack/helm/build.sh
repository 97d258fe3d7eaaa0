#!/usr/bin/env bash
# Builds Helm 3 and Helm 4 from Go modules into a cache folder outside the checkout. Only `make test-helm` needs them.
#
#   hack/helm/build.sh      build what is missing, print the folder with helm3 and helm4 on stdout
#
# Progress goes to stderr. Ends with 3 where Go is missing.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${MUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster}"
digest() { if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi; }
out="$cache/helm-$(cat "$here"/v3/go.{mod,sum} "$here"/v4/go.{mod,sum} | digest | cut -c1-12)"
say() { echo "helm: $*" >&2; }

if [ -e "$out/complete" ]; then
  echo "$out"
  exit 0
fi
if ! command -v go >/dev/null 2>&1; then
  say "Go is missing: install Go 1.26 or newer (https://go.dev/dl) to build Helm"
  exit 3
fi
mkdir -p "$out"
# One builder at a time; a second one waits and then finds the work done.
if command -v flock >/dev/null 2>&1; then
  exec 9>"$out/.lock"
  flock 9
fi
if [ ! -e "$out/complete" ]; then
  say "building Helm 3 and 4 into $out (once, about 5 minutes on two cores)"
  for major in 3 4; do
    started=$SECONDS
    # A binary appears under its name only when it is whole.
    (cd "$here/v$major" && GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" \
      -o "$out/.helm$major.partial" "helm.sh/helm/v$major/cmd/helm") >&2 9>&-
    mv "$out/.helm$major.partial" "$out/helm$major"
    say "built helm$major in $((SECONDS - started)) s"
  done
  touch "$out/complete"
fi
echo "$out"
