#!/usr/bin/env bash
# Takes the Dockerfile's steps without a daemon, and looks at what comes of them: how large the binary is, that nothing but it can be
# run, that it runs as the user and alone in its file system, what the bill of materials lists, and how soon it is ready.
#
#   hack/image/test.sh CACHE
#
# CACHE keeps cargo-cyclonedx. Needs a control plane for the last of it: `make test-image` sees to that.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cache=$1
largest=60000000
longest=3000
fail() {
  echo "image: $*" >&2
  exit 1
}
# What the Dockerfile names is what is tried: the version of the tool, its arguments, the last stage.
version=$(sed -n 's/.*cargo install --locked cargo-cyclonedx@\([0-9.]*\).*/\1/p' Dockerfile)
arguments=$(sed -n 's/.*cargo cyclonedx \(.*\)$/\1/p' Dockerfile)
[ -n "$version" ] && [ -n "$arguments" ] || fail "the Dockerfile makes no bill of materials"
stage=$(awk '/^FROM /{stage=""} {stage=stage $0 "\n"} END{printf "%s", stage}' Dockerfile)
grep -q '^FROM scratch$' <<<"$stage" || fail "the last stage begins with more than nothing"
user=$(sed -n 's/^USER \([0-9]*\):\([0-9]*\)$/\1:\2/p' <<<"$stage")
[ -n "$user" ] && [ "${user%%:*}" -gt 0 ] || fail "the last stage names no user by a number above 0"
entry=$(sed -n 's/^ENTRYPOINT \["\(.*\)"\]$/\1/p' <<<"$stage")

tools="$cache/cargo-cyclonedx-$version"
if [ ! -x "$tools/bin/cargo-cyclonedx" ]; then
  echo "image: building cargo-cyclonedx $version (once)" >&2
  CARGO_TARGET_DIR="$tools/target" cargo install --quiet --locked --root "$tools" "cargo-cyclonedx@$version"
  rm -rf "$tools/target"
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"; find . -name bom.json -not -path "./target/*" -delete' EXIT
# shellcheck disable=SC2086
PATH="$tools/bin:$PATH" cargo cyclonedx --quiet $arguments
cargo build --release --locked --bin muster
root="$folder/image"
hack/image/rootfs.sh "${CARGO_TARGET_DIR:-target}/release/muster" bom.json "$root"

size=$(stat -c %s "$root$entry")
[ "$size" -le "$largest" ] || fail "the binary has $size bytes, more than $largest"
echo "image: the binary has $size bytes, all of it $(du -sb "$root" | cut -f1)"

# Every executable that is no shared library.
programs=$(find "$root" -type f -perm /111 ! -name '*.so' ! -name '*.so.*' -printf '/%P\n')
[ "$programs" = "$entry" ] || fail "more than $entry can be run: $programs"

python3 - "$root/usr/share/sbom/muster.cdx.json" <<'PY'
import json, subprocess, sys
bom = json.load(open(sys.argv[1]))
assert bom["bomFormat"] == "CycloneDX", bom["bomFormat"]
assert bom["metadata"]["component"]["name"] == "muster", bom["metadata"]["component"]
listed = {(one["name"], one["version"]) for one in bom["components"]}
tree = subprocess.run(["cargo", "tree", "--locked", "--edges=normal", "--prefix=none", "--target=all", "--format={p}"],
                      check=True, capture_output=True, text=True).stdout
needed = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
needed = {(name, version.lstrip("v")) for name, version in needed if name != "muster"}
missing = sorted(needed - listed)
assert not missing, f"not in the bill of materials: {missing}"
print(f"image: {len(listed)} components in the bill of materials, {len(needed)} of them in the binary")
PY

# Alone in its file system and as its user; with no server to reach it says so, and so it has read its configuration.
alone() { chroot --userspec="$user" "$root" "$entry" "$@"; }
if [ "$(id -u)" -ne 0 ]; then alone() { unshare --map-root-user chroot "$root" "$entry" "$@"; }; fi
alone version | head -1
alone --help >/dev/null || fail "it does not run alone"
if alone serve --config /none.yaml 2>"$folder/refused"; then fail "it serves without a configuration"; fi
grep -q /none.yaml "$folder/refused" || fail "it does not name the file that is missing: $(cat "$folder/refused")"

MUSTER="$root$entry" cargo test --quiet --workspace --test e2e -- image:: --nocapture | tee "$folder/ready"
ready=$(sed -n 's/.*every kind was listed after \([0-9]*\) ms.*/\1/p' "$folder/ready")
[ -n "$ready" ] || fail "nobody has measured how soon it is ready"
[ "$ready" -le "$longest" ] || fail "it was ready after $ready ms, later than $longest"
echo "image: ready after $ready ms"
