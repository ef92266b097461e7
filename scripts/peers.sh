#!/usr/bin/env bash
# Fetches the stores that KVZone compares with into target/peers, where
# `kvzone list stores` looks for them. Nothing is installed, and nobody needs to
# be root: Debian packages are downloaded by apt and unpacked, RocksDB comes as
# the native library inside its Maven artifact. What is there already is not
# fetched again; `rm -r target/peers` begins anew.
#
# What cannot be fetched is named, and the rest goes on: a comparison names what
# it lacks too. Exit status: 0, or 3 if not one store is there in the end,
# fetched or installed on the system.
#
#   CARGO_TARGET_DIR   the folder in which `peers` is made (target)
set -uo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 3

place=${CARGO_TARGET_DIR:-target}/peers
mkdir -p "$place" || exit 3
place=$(cd "$place" && pwd) || exit 3

# Library that must be there in the end, Debian package, and further packages
# that it needs and that a small system lacks.
packages='
libleveldb.so.1d libleveldb1d libsnappy1v5
libkyotocabinet.so.16 libkyotocabinet16v5 liblzo2-2
liblmdb.so.0 liblmdb0
libsqlite3.so.0 libsqlite3-0
libdb-5.3.so libdb5.3
libtokyocabinet.so.9 libtokyocabinet9 libbz2-1.0 zlib1g
'

# The artifact, what is taken out of it, and the library's checksum.
rocksdb_group=org.rocksdb
rocksdb_name=rocksdbjni
rocksdb_version=11.8.1
rocksdb_library=librocksdbjni-linux64.so
rocksdb_sha256=265c656af5c6502cb8d71db1a74858509f706cc47f1a5b6f603c736d11ce677d

found=0
missing=0

say() { printf 'peers: %s\n' "$*"; }
there() {
    say "$1: $2"
    found=$((found + 1))
}
lacking() {
    say "$1: MISSING: $2" >&2
    missing=$((missing + 1))
}

# The system's loader knows it; Debian keeps ldconfig out of users' paths.
on_system() {
    PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep -q "^[[:space:]]*$1 "
}

# Downloads a package and lays its libraries into target/peers. In a folder of
# its own: apt drops its privileges where root runs it, and may not write here.
fetch_package() {
    local package=$1 work status=0
    work=$(mktemp -d) || return 1
    chmod 755 "$work"
    (cd "$work" && apt-get download -q "$package") >"$work/log" 2>&1 &&
        dpkg -x "$work"/*.deb "$work/tree" >>"$work/log" 2>&1 &&
        find "$work/tree" -name '*.so*' -exec cp -P {} "$place/" \; || status=1
    if [ "$status" -ne 0 ]; then sed 's/^/peers:   /' "$work/log" >&2; fi
    rm -rf "$work"
    return "$status"
}

fetch_debian() {
    local library=$1 package
    shift
    if [ -e "$place/$library" ]; then
        there "$library" "$place/$library"
        return
    fi
    if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
        if on_system "$library"; then
            there "$library" 'installed on the system'
        else
            lacking "$library" "there is no apt-get here; install what holds $library"
        fi
        return
    fi
    for package in "$@"; do
        say "fetching the Debian package $package"
        if ! fetch_package "$package"; then
            if [ "$package" = "$1" ] && on_system "$library"; then
                there "$library" 'installed on the system; its package could not be fetched'
                return
            fi
            lacking "$library" "the Debian package $package could not be fetched; try apt-get update"
            return
        fi
    done
    if [ -e "$place/$library" ]; then
        there "$library" "$place/$library"
    else
        lacking "$library" "the Debian package $1 does not hold it"
    fi
}

unpack() {
    if command -v unzip >/dev/null; then
        unzip -q -o -j "$1" "$rocksdb_library" -d "$2"
    elif command -v jar >/dev/null; then
        (cd "$2" && jar xf "$1" "$rocksdb_library")
    else
        python3 -m zipfile -e "$1" "$2"
    fi
}

is_rocksdb() {
    [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$rocksdb_sha256" ]
}

# Answers the words for what went wrong, or nothing.
fetch_rocksdb() {
    local artifact=$rocksdb_group:$rocksdb_name:$rocksdb_version work=$1
    if [ "$(uname -sm)" != 'Linux x86_64' ]; then
        echo "the library is taken for x86-64 Linux only; put another into a folder named by KVZONE_PEER_LIBS"
    elif ! command -v mvn >/dev/null; then
        echo "mvn (Debian package maven) is needed to fetch $artifact"
    elif ! mvn -B -q dependency:copy -Dartifact="$artifact" -DoutputDirectory="$work" \
        -Dmdep.useBaseVersion=true >"$work/log" 2>&1; then
        grep -v '^\[INFO\]' "$work/log" | head -n 5 | sed 's/^/peers:   /' >&2
        echo "mvn could not fetch $artifact"
    elif ! unpack "$work/$rocksdb_name-$rocksdb_version.jar" "$work" >"$work/log" 2>&1; then
        echo "$artifact could not be unpacked: unzip, jar or python3 is needed"
    elif ! is_rocksdb "$work/$rocksdb_library"; then
        echo "$rocksdb_library in $artifact is not the one expected (SHA-256 $rocksdb_sha256)"
    elif ! mv "$work/$rocksdb_library" "$place/"; then
        echo "$place cannot be written"
    fi
}

fetch_maven() {
    local work problem
    if is_rocksdb "$place/$rocksdb_library"; then
        there "$rocksdb_library" "$place/$rocksdb_library"
        return
    fi
    say "fetching the Maven artifact $rocksdb_group:$rocksdb_name:$rocksdb_version (90 MB)"
    work=$(mktemp -d) || return
    problem=$(fetch_rocksdb "$work")
    rm -rf "$work"
    if [ -z "$problem" ]; then
        there "$rocksdb_library" "$place/$rocksdb_library"
    else
        lacking "$rocksdb_library" "$problem"
    fi
}

while read -r library wanted; do
    # The packages are words.
    # shellcheck disable=SC2086
    if [ -n "$library" ]; then fetch_debian "$library" $wanted; fi
done <<<"$packages"
fetch_maven

say "$found found, $missing missing"
if [ "$found" -eq 0 ]; then exit 3; fi
