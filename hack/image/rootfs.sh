#!/bin/sh
# Lays out everything that the image holds, and nothing else: the binary, the shared libraries that it loads, roots of trust for
# AWS's endpoints, a user, and the bill of materials. No shell, no package manager.
#
#   hack/image/rootfs.sh BINARY BOM FOLDER
#
# The Dockerfile runs it in its build stage, hack/image/test.sh without any daemon.
set -eu

[ $# -eq 3 ] || { echo "usage: $0 BINARY BOM FOLDER" >&2; exit 2; }
binary=$1 bom=$2 root=$3
certificates=/etc/ssl/certs/ca-certificates.crt

for file in "$binary" "$bom" "$certificates"; do
  [ -s "$file" ] || { echo "$0: $file is missing or empty" >&2; exit 1; }
done
mkdir -p "$root/usr/local/bin" "$root/etc/ssl/certs" "$root/usr/share/sbom" "$root/tmp"
chmod 1777 "$root/tmp"
install -m 0755 "$binary" "$root/usr/local/bin/muster"
install -m 0644 "$certificates" "$root/etc/ssl/certs/"
install -m 0644 "$bom" "$root/usr/share/sbom/muster.cdx.json"

# Each library where the loader looks for it; the loader itself is named by its whole path.
ldd "$binary" | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
  install -D -m 0755 "$library" "$root$library"
done

# The number in the Deployment's securityContext, for what looks a user up.
echo 'muster:x:65532:65532:muster:/:/sbin/nologin' >"$root/etc/passwd"
echo 'muster:x:65532:' >"$root/etc/group"
