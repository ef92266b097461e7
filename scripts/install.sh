#!/bin/sh
# Installs the C libraries, their headers and the files for pkg-config under a prefix,
# or takes them away.
# Usage: install.sh TARGET PREFIX [DESTDIR]: TARGET holds the libraries that Cargo has
#        built, files go to DESTDIR/PREFIX.
#        install.sh --remove PREFIX [DESTDIR]
# LIBDIR is the folder of the libraries below the prefix: lib unless given.
set -eu
cd "$(dirname "$0")/.."

target=$1
prefix=$2
root=${3:-}$prefix
libraries=${LIBDIR:-lib}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
# Programs look for the first part of the version when they start: `build.rs`.
major=${version%%.*}

if [ "$target" = --remove ]; then
    for library in cambium cambium_leveldb; do
        rm -f "$root/$libraries/lib$library".so "$root/$libraries/lib$library".so.* \
            "$root/$libraries/pkgconfig/$library.pc"
    done
    rm -f "$root/$libraries/libcambium.a" "$root/include/cambium.h" \
        "$root/include/cambium/leveldb/c.h"
    for folder in include/cambium/leveldb include/cambium; do
        [ ! -d "$root/$folder" ] || rmdir "$root/$folder"
    done
    echo "removed from $root" >&2
    exit 0
fi

# $1 is the library that Cargo built, $2 the name that programs link with.
install_library() {
    install -m 755 "$target/$1" "$root/$libraries/lib$2.so.$version"
    ln -sf "lib$2.so.$version" "$root/$libraries/lib$2.so.$major"
    ln -sf "lib$2.so.$major" "$root/$libraries/lib$2.so"
    sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libraries|" -e "s|@VERSION@|$version|" "$3" >"$root/$libraries/pkgconfig/$2.pc"
    chmod 644 "$root/$libraries/pkgconfig/$2.pc"
}

install -d "$root/$libraries/pkgconfig" "$root/include/cambium/leveldb"
install_library libcambium_c.so cambium crates/cambium-ffi/cambium.pc.in
install_library libcambium_leveldb.so cambium_leveldb crates/cambium-leveldb/cambium_leveldb.pc.in
install -m 644 "$target/libcambium_c.a" "$root/$libraries/libcambium.a"
install -m 644 crates/cambium-ffi/include/cambium.h "$root/include/cambium.h"
# Programs include it as "leveldb/c.h" or <leveldb/c.h>, and a LevelDB beside it stays.
install -m 644 crates/cambium-leveldb/include/leveldb/c.h "$root/include/cambium/leveldb/c.h"
echo "installed under $root: compile with \`pkg-config --cflags --libs cambium\`" >&2
