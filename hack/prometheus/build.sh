#!/usr/bin/env bash
# Builds promtool, or Prometheus itself, from one Go module into a cache folder outside the checkout.
#
#   hack/prometheus/build.sh               promtool, for `make test-observability`
#   hack/prometheus/build.sh prometheus    the server, without its own pages, for `make test-observability-live`
#
# Builds what is missing and prints the path of the program on stdout; progress goes to stderr. Ends with 3 where Go is missing.
set -euo pipefail

program="${1:-promtool}"
case "$program" in
  promtool | prometheus) ;;
  *) echo "prometheus: build.sh builds promtool or prometheus, not $program" >&2; exit 2 ;;
esac
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${MUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster}"
digest() { if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi; }
out="$cache/$program-$(cat "$here"/go.{mod,sum} | digest | cut -c1-12)"
say() { echo "$program: $*" >&2; }

if [ -x "$out/$program" ]; then
  echo "$out/$program"
  exit 0
fi
if ! command -v go >/dev/null 2>&1; then
  say "Go is missing: install Go 1.26 or newer (https://go.dev/dl) to build $program"
  exit 3
fi
mkdir -p "$out"
# One builder at a time; a second one waits and then finds the work done.
if command -v flock >/dev/null 2>&1; then
  exec 9>"$out/.lock"
  flock 9
fi
if [ ! -x "$out/$program" ]; then
  say "building $program into $out (once, some minutes)"
  started=$SECONDS
  # Without service discovery: of all clouds' clients none is needed, and not every one can be had. A binary appears under its
  # name only when it is whole.
  (cd "$here" && GOFLAGS="${GOFLAGS:-} -mod=readonly" CGO_ENABLED=0 go build -tags remove_all_sd -trimpath -ldflags "-s -w" \
    -o "$out/.$program.partial" "github.com/prometheus/prometheus/cmd/$program") >&2 9>&-
  mv "$out/.$program.partial" "$out/$program"
  say "built $program in $((SECONDS - started)) s"
fi
echo "$out/$program"
