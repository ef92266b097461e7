#!/bin/sh
# Installs the C libraries, their headers and the file for pkg-config under a prefix.
# Usage: install.sh TARGET PREFIX [DESTDIR]: TARGET holds the release libraries, files
# go to DESTDIR/PREFIX.
set -eu
cd "$(dirname "$0")/.."

target=$1
prefix=$2
root=${3:-}$prefix
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)

install -d "$root/lib/pkgconfig" "$root/include/cambium/leveldb"
install -m 755 "$target/libcambium_c.so" "$root/lib/libcambium.so"
install -m 644 "$target/libcambium_c.a" "$root/lib/libcambium.a"
install -m 755 "$target/libcambium_leveldb.so" "$root/lib/libcambium_leveldb.so"
install -m 644 crates/cambium-ffi/include/cambium.h "$root/include/cambium.h"
# Compile with -I PREFIX/include/cambium to include it as "leveldb/c.h".
install -m 644 crates/cambium-leveldb/include/leveldb/c.h "$root/include/cambium/leveldb/c.h"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" crates/cambium-ffi/cambium.pc.in \
    > "$root/lib/pkgconfig/cambium.pc"
chmod 644 "$root/lib/pkgconfig/cambium.pc"
echo "installed under $root: compile with \`pkg-config --cflags --libs cambium\`" >&2
