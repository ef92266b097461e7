#!/usr/bin/env bash
# The main job on real input: a tree of files of this machine goes into a store
# and is looked up, listed, measured, checked, and survives a kill. Each step
# says what it shows; the first thing that is not true ends with status 1. At the
# end, stores that are found on this machine do the same work beside forest and
# wisckey.
# Nothing needs to be set up before. Other stores are fetched into target/peers for the
# comparison; nothing else is left behind.
#
#   CAMBIUM_RUN_INPUT   the folder to import (/usr)
#   CAMBIUM_RUN_FILES   at most so many files (30000)
#   CAMBIUM_RUN_BYTES   and so many bytes (1GiB; 256MiB where the disk is small)
set -euo pipefail
export LC_ALL=C # order is the order of bytes, here as in the store
cd "$(dirname "$0")/.."

input=${CAMBIUM_RUN_INPUT:-/usr}
files=${CAMBIUM_RUN_FILES:-30000}
bytes=${CAMBIUM_RUN_BYTES:-}
# The part with the kill needs only as much as takes a few syncs.
killed_bytes=256MiB
# Free space below which less is imported, KiB.
small_disk=$((4 * 1024 * 1024))

step() { printf '\n== %s\n' "$*"; }
true_that() { printf '   true: %s\n' "$*"; }
fail() {
    printf '   NOT TRUE: %s\n' "$*" >&2
    exit 1
}

.ci/preflight
# Where they cannot be fetched, stores that are installed are found, or none.
timeout 60 scripts/peers.sh >/dev/null 2>&1 || true
cargo build -j"${JOBS:-2}" --release --package cambium-cli --package kvzone
built=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cambium=$built/release/cambium
kvzone=$built/release/kvzone

place=$(mktemp -d "$built/run.XXXXXX")
writer=
clean_up() {
    if [ -n "$writer" ]; then kill -9 "$writer" 2>/dev/null || true; fi
    rm -rf "$place"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
cd "$place"

if [ -z "$bytes" ]; then
    bytes=1GiB
    free=$(df --output=avail -k . | tail -n 1)
    if [ "$free" -lt "$small_disk" ]; then bytes=256MiB; fi
fi

# Every key of a store in hexadecimal digits, in the order of the keys.
keys_of() { "$cambium" scan "$1" --keys-only --format hex | sort; }

# Paths, one a line, without those that a line of text cannot hold as they are.
plain() { grep -v '[[:cntrl:]\\]' || true; }

# Looks up about $2 of the keys of store $1, spread evenly over the paths on
# standard input, and compares each value with the file it was made of.
compare_with_files() {
    local store=$1 count=0 path
    while IFS= read -r path; do
        "$cambium" get "$store" -- "$path" | cmp - "$input/$path" ||
            fail "the value of $path is the file's content"
        count=$((count + 1))
    done < <(awk -v most="$2" '{ paths[NR] = $0 }
        END { every = int(NR / most) + 1; for (at = 1; at <= NR; at += every) print paths[at] }')
    [ "$count" -gt 0 ] || fail "there was something to compare"
    true_that "$count values are the files' contents, byte for byte"
}

step "import: up to $files files or $bytes of $input, synced every 10,000 entries or 64 MiB"
"$cambium" create trees
started=$SECONDS
status=0
"$cambium" import trees --from "files:$input" --limit "$files" --limit-bytes "$bytes" 2>import.log || status=$?
tail -n 3 import.log | sed 's/^/   /'
echo "   took $((SECONDS - started)) s"
# Files that this user may not read are named, and are no failure of the store.
[ "$status" -eq 0 ] || { [ "$status" -eq 3 ] && grep -q 'were left out' import.log; } ||
    fail "the import ended with status 0, or 3 for unreadable files only"
keys_of trees >keys
imported=$(sed -n 's/^cambium: imported \([0-9]*\) entries.*/\1/p' import.log)
[ "$(wc -l <keys)" -eq "$imported" ] || fail "the store has as many keys as were imported, $imported"
true_that "the store has $imported keys, as many as were imported"

step "look up: get | cmp with the real file"
"$cambium" scan trees --keys-only | plain | sort >paths
compare_with_files trees 200 <paths
status=0
"$cambium" get trees no/such/file 2>/dev/null || status=$?
[ "$status" -eq 1 ] || fail "a key without a value is status 1; it was $status"
true_that "a key without a value is exit status 1"

step "list a folder: a scan of the keys that begin with its path, in key order"
folder=$(dirname -- "$(sed -n "$((imported / 2 + 1))p" paths)")
[ "$folder" != . ] || fail "the path in the middle lies in a folder"
"$cambium" scan trees --prefix "$folder/" --keys-only | plain >listed
sort -c listed || fail "the listing is in key order"
head -n 3 listed | sed 's/^/   /'
# On the disk, the same folder; where the import stopped, up to there.
last=$(tail -n 1 paths)
(cd "$input" && find "$folder" -type f -readable -print0) | tr '\0\n' '\n\1' | plain | sort |
    awk -v last="$last" '$0 <= last' >on_disk
cmp listed on_disk || fail "the listing of $folder is what find lists"
true_that "$folder holds $(wc -l <listed) files, the same as on the disk"

step "statistics: space and write amplification"
"$cambium" stats trees |
    grep -E '^(entries|space_bytes|space_amplification|user_bytes_written|write_amplification|nodes) ' |
    sed 's/^/   /'

step "check: every byte of the store is verified, nothing is written"
"$cambium" check trees | sed 's/^/   /' || fail "the store is sound"
true_that "the store is sound"

step "kill -9 a process that imports, right after it told that a part is synced"
# Fewer syncs than this, and it might be done before the kill reaches it.
[ "$(grep -c '^cambium: synced' import.log)" -ge 3 ] ||
    fail "$input is large enough for an import to be killed in its middle; set CAMBIUM_RUN_INPUT"
"$cambium" create killed
"$cambium" import killed --from "files:$input" --limit "$files" --limit-bytes "$killed_bytes" 2>killed.log &
writer=$!
for _ in $(seq 3000); do
    if grep -q '^cambium: synced' killed.log || ! kill -0 "$writer" 2>/dev/null; then break; fi
    sleep 0.01
done
kill -9 "$writer" 2>/dev/null || true
wait "$writer" 2>/dev/null || true
writer=
if grep -q '^cambium: imported' killed.log; then
    fail "the import was still under way when it was killed: $input is too small, set CAMBIUM_RUN_INPUT"
fi
synced=$(sed -n 's/^cambium: synced \([0-9]*\) entries.*/\1/p' killed.log | tail -n 1)
[ -n "$synced" ] || fail "the import told a synced position before it ended"
grep '^cambium: synced' killed.log | tail -n 1 | sed 's/^/   its last words: /'
"$cambium" check killed | sed 's/^/   /' || fail "what the kill left unfinished is no damage"
keys_of killed >found
kept=$(wc -l <found)
[ "$kept" -ge "$synced" ] || fail "all $synced synced entries are there; found $kept"
# `head` ends early; the file is read for it.
head -n "$kept" keys >expected
cmp found expected || fail "what is there is exactly the first $kept entries"
true_that "$synced entries were told synced; exactly the first $kept are there, none out of order"
"$cambium" scan killed --keys-only | plain | sort | head -n "$synced" >paths_synced
compare_with_files killed 50 <paths_synced

step "reopen: the import goes on behind the last synced entry, and the store is as if nothing had happened"
status=0
"$cambium" import killed --from "files:$input" --limit "$files" --limit-bytes "$killed_bytes" --resume 2>killed.log || status=$?
sed -n '1p;$p' killed.log | sed 's/^/   /'
[ "$status" -eq 0 ] || grep -q 'were left out' killed.log || fail "the import ended"
grep -q 'going on behind' killed.log || fail "the import went on and did not begin again"
keys_of killed >found
head -n "$(wc -l <found)" keys >expected
cmp found expected || fail "the resumed import has exactly the first $(wc -l <found) entries"
"$cambium" check killed >/dev/null || fail "the store is sound"
true_that "it has $(wc -l <found) entries, and is sound"

step "compare: forest and wisckey beside the stores found here, on more than five write buffers of data"
found=
for store in leveldb rocksdb lmdb; do
    if "$kvzone" list stores "$store" --json | grep -q '"found": true'; then found+=",$store"; fi
done
if [ -z "$found" ]; then
    echo "   no other store is found here, and none could be fetched (\`make peers\` says why):"
    echo "   a map in memory stands beside them"
    found=,memory
fi
# One round: a glimpse, without verdicts.
status=0
"$kvzone" matrix --quick --programs main --repeat 1 --stores "forest,wisckey$found" --dir . \
    --json compare.json 2>compare.log >compare.txt || status=$?
sed 's/^/   /' compare.log compare.txt
[ "$status" -eq 0 ] || fail "every store that was found did its work"
true_that "every answer that was compared is what was written"

printf '\nEverything shown was true; took %s s.\n' "$SECONDS"
