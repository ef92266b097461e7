#!/usr/bin/env bash
# Makes Debian packages of what Cargo has built, by dpkg-deb alone: cambium, cambium-server,
# kvzone, libcambium0, libcambium-dev, and for each with machine code NAME-dbgsym, whose files
# gdb and valgrind find by build id.
# Usage: packages.sh PROGRAMS LIBRARIES PAGES OUT: two folders of what Cargo has built, what
#        `make pages` writes, and the folder of the packages.
set -euo pipefail
export LC_ALL=C
programs=$(realpath "$1") built=$(realpath "$2") pages=$(realpath "$3")
mkdir -p "$4"
out=$(realpath "$4")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
libraries=lib/$(uname -m)-linux-gnu
date=$(git log -1 --format=%ct 2>/dev/null || date +%s)
# dpkg-deb and gzip write this time, so that the same build gives the same packages.
export SOURCE_DATE_EPOCH=$date
maintainer="${DEBFULLNAME:-the authors of Cambium} <${DEBEMAIL:-cambium@localhost}>"
# 0 to 9: what is tested does not have to be small.
compression=${COMPRESSION:-6}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
licences=$(cargo xtask licences)

# The packages that the machine code in the files needs.
needs() {
    local glibc
    glibc=$(objdump -T "$@" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -n 1)
    echo "libc6 (>= $glibc), libgcc-s1 (>= 4.2)"
}

# Moves the debug information of file $2 in the tree of package $1 to that of $1-dbgsym.
strip_file() {
    local id debug
    id=$(readelf -n "$2" | sed -n 's/.*Build ID: //p')
    [ -n "$id" ] || {
        echo "packages: $2 has no build id" >&2
        exit 1
    }
    debug=$work/$1-dbgsym/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
    install -d "${debug%/*}"
    objcopy --only-keep-debug --compress-debug-sections=zlib "$2" "$debug"
    chmod 644 "$debug"
    strip --strip-unneeded --remove-section=.comment "$2"
}

# Makes package $1, of section $2, whose files lie in $work/$1. $3 is what it depends on, $4
# its description: a line, and lines that begin with a blank.
pack() {
    local tree=$work/$1 documents=$work/$1/usr/share/doc/$1
    install -d "$documents" "$tree/DEBIAN"
    {
        printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n'
        printf 'Upstream-Name: Cambium\nSource: https://github.com/cambium-kv/cambium\n\n'
        printf 'Files: *\nCopyright: the authors of Cambium\nLicense: Expat or Apache-2.0\n'
        printf ' The Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.\n .\n'
        sed 's/^$/./; s/^/ /' LICENSE-MIT
        printf '\nComment: Programs and libraries contain these crates, each under its own licence:\n'
        sed 's/^/ /' <<<"$licences"
    } >"$documents/copyright"
    gzip -9n <CHANGELOG.md >"$documents/changelog.gz"
    find "$tree" -type d -exec chmod 755 {} +
    printf 'Package: %s\nSource: cambium\nVersion: %s\nArchitecture: %s\nSection: %s\n' \
        "$1" "$version" "$architecture" "$2" >"$tree/DEBIAN/control"
    printf 'Priority: optional\nMaintainer: %s\n' "$maintainer" >>"$tree/DEBIAN/control"
    printf 'Installed-Size: %s\nDepends: %s\nHomepage: https://github.com/cambium-kv/cambium\n' \
        "$(du -sk --apparent-size "$tree" | cut -f 1)" "$3" >>"$tree/DEBIAN/control"
    printf 'Description: %s\n' "$4" >>"$tree/DEBIAN/control"
    (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
    dpkg-deb --root-owner-group -Zxz -z"${5:-$compression}" --build "$tree" "$out/$1_${version}_$architecture.deb" >/dev/null
}

# The same for the debug information of $1, which xz hardly makes smaller.
pack_debug() {
    pack "$1-dbgsym" debug "$1 (= $version)" "debug symbols for $1" 0
}

# Program $1, described by $2, with its man pages and completions.
program() {
    local tree=$work/$1 page
    install -D -m 755 "$programs/$1" "$tree/usr/bin/$1"
    strip_file "$1" "$tree/usr/bin/$1"
    install -d "$tree/usr/share/man/man1"
    # `cambium-server.1` is no page of `cambium`.
    for page in "$pages/$1".1 "$pages/$1"-*.1; do
        [ -e "$page" ] && { [ "$1" != cambium ] || [[ $page != */cambium-server* ]]; } || continue
        gzip -9n <"$page" >"$tree/usr/share/man/man1/${page##*/}.gz"
    done
    install -D -m 644 "$pages/$1.bash" "$tree/usr/share/bash-completion/completions/$1"
    install -D -m 644 "$pages/_$1" "$tree/usr/share/zsh/vendor-completions/_$1"
    install -D -m 644 "$pages/$1.fish" "$tree/usr/share/fish/vendor_completions.d/$1.fish"
    pack "$1" database "$(needs "$tree/usr/bin/$1")" "$2"
    pack_debug "$1"
}

program cambium 'persistent key-value store, command line
 Makes, reads, checks, copies and backs up stores of Cambium, an embeddable
 key-value store with four engines, and imports LevelDB, RocksDB, LMDB, SQLite
 and Redis.'

service=$work/cambium-server
install -D -m 644 contrib/systemd/cambium-server.service "$service/usr/lib/systemd/system/cambium-server.service"
install -D -m 644 contrib/cambium-server.toml "$service/etc/cambium/cambium-server.toml"
install -d "$service/DEBIAN"
echo /etc/cambium/cambium-server.toml >"$service/DEBIAN/conffiles"
program cambium-server 'persistent key-value store, server for clients of Redis
 Serves a store of Cambium over the protocols of Redis and Thrift, with metrics
 for Prometheus, TLS, and clusters. systemctl enable --now cambium-server starts
 it with /etc/cambium/cambium-server.toml.'

program kvzone 'benchmark of key-value stores
 Measures Cambium beside LevelDB, RocksDB, LMDB, SQLite, Redis and others, and
 repeats figures of papers.'

library=$work/libcambium0 headers=$work/libcambium-dev
LIBDIR=$libraries scripts/install.sh "$built" /usr "$library" 2>/dev/null
for name in cambium cambium_leveldb; do
    strip_file libcambium0 "$library/usr/$libraries/lib$name.so.$version"
done
strip --strip-debug "$library/usr/$libraries/libcambium.a"
install -d "$headers/usr/$libraries"
mv "$library/usr/include" "$headers/usr"
mv "$library/usr/$libraries"/{lib*.so,libcambium.a,pkgconfig} "$headers/usr/$libraries"
install -d "$library/DEBIAN"
echo 'activate-noawait ldconfig' >"$library/DEBIAN/triggers"
printf 'libcambium 0 libcambium0\nlibcambium_leveldb 0 libcambium0\n' >"$library/DEBIAN/shlibs"
pack libcambium0 libs "$(needs "$library/usr/$libraries"/*.so.*)" 'persistent key-value store, library for C
 libcambium, and libcambium_leveldb, which has the C interface of LevelDB.'
pack_debug libcambium0
pack libcambium-dev libdevel "libcambium0 (= $version), libc6-dev" 'persistent key-value store, headers for C and C++
 Headers, a static library, and files for pkg-config.'
