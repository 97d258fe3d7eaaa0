#!/usr/bin/env bash
# Builds the peer of `make bench`: Karpenter's scheduler from its Go module, into a cache folder outside the checkout.
#
#   hack/karpenter/build.sh      build what is missing, print the path of the program on stdout
#
# Progress goes to stderr. Ends with 3 where Go is missing.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${MUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster}"
digest() { if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi; }
out="$cache/karpenter-peer-$(cat "$here"/{go.mod,go.sum,main.go} | digest | cut -c1-12)"
say() { echo "karpenter-peer: $*" >&2; }

if [ -x "$out/karpenter-peer" ]; then
  echo "$out/karpenter-peer"
  exit 0
fi
if ! command -v go >/dev/null 2>&1; then
  say "Go is missing: install Go 1.26 or newer (https://go.dev/dl) to build Karpenter's scheduler"
  exit 3
fi
mkdir -p "$out"
# One builder at a time; a second one waits and then finds the work done.
if command -v flock >/dev/null 2>&1; then
  exec 9>"$out/.lock"
  flock 9
fi
if [ ! -x "$out/karpenter-peer" ]; then
  say "building Karpenter's scheduler into $out (once, some minutes)"
  started=$SECONDS
  # The module asks for a toolchain that may be newer than the one installed; Go fetches it as it does modules. A binary
  # appears under its name only when it is whole.
  (cd "$here" && GOTOOLCHAIN="$(sed -n 's/^go /go/p' go.mod)" GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w" -o "$out/.karpenter-peer.partial" .) >&2 9>&-
  mv "$out/.karpenter-peer.partial" "$out/karpenter-peer"
  say "built in $((SECONDS - started)) s"
fi
echo "$out/karpenter-peer"
