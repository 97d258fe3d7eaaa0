#!/usr/bin/env bash
# Builds promtool from its Go module into a cache folder outside the checkout. Only `make test-observability` needs it.
#
#   hack/prometheus/build.sh      build what is missing, print the path of promtool on stdout
#
# Progress goes to stderr. Ends with 3 where Go is missing.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${MUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster}"
digest() { if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi; }
out="$cache/promtool-$(cat "$here"/go.{mod,sum} | digest | cut -c1-12)"
say() { echo "promtool: $*" >&2; }

if [ -x "$out/promtool" ]; then
  echo "$out/promtool"
  exit 0
fi
if ! command -v go >/dev/null 2>&1; then
  say "Go is missing: install Go 1.26 or newer (https://go.dev/dl) to build promtool"
  exit 3
fi
mkdir -p "$out"
# One builder at a time; a second one waits and then finds the work done.
if command -v flock >/dev/null 2>&1; then
  exec 9>"$out/.lock"
  flock 9
fi
if [ ! -x "$out/promtool" ]; then
  say "building promtool into $out (once, some minutes)"
  started=$SECONDS
  # Without service discovery: of all clouds' clients none is needed, and not every one can be had. A binary appears under its
  # name only when it is whole.
  (cd "$here" && GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -tags remove_all_sd -trimpath -ldflags "-s -w" \
    -o "$out/.promtool.partial" github.com/prometheus/prometheus/cmd/promtool) >&2 9>&-
  mv "$out/.promtool.partial" "$out/promtool"
  say "built promtool in $((SECONDS - started)) s"
fi
echo "$out/promtool"
