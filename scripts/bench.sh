#!/usr/bin/env bash
# Measures what docs/benchmarks.md shows, and puts the results between the
# markers of their tables: synced writes alone and together, the tables of the
# ZDB paper, and the figures of the ForestDB paper: index structures at a
# million keys, stores with two points of figures 14 and 16 and all of 17. Then every
# store that is here beside every other, into docs/benchmarks/: a page, its charts, and
# its tables as text. On a machine that does other work, believe ratios more than rates.
#
#   BENCH_KEYS     entries of that comparison (100k)
#   BENCH_SCALE    share of the ZDB paper's 100 million entries (0.01)
#   BENCH_ROUNDS   rounds in which stores take turns there (5)
#   BENCH_FIGURES  share of the ForestDB paper's 200 million documents (0.0018)
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

document=docs/benchmarks.md
cargo=${CARGO:-cargo}
place=${CARGO_TARGET_DIR:-target}
mkdir -p "$place/bench"

# Replaces what stands between the markers of $1 by standard input.
between_markers() {
    grep -qF "<!-- begin $1 -->" "$document" || {
        printf 'bench: %s has no marker for %s\n' "$document" "$1" >&2
        exit 3
    }
    awk -v name="$1" -v new="$place/bench/new.txt" '
        $0 == "<!-- end " name " -->" { skip = 0 }
        !skip { print }
        $0 == "<!-- begin " name " -->" {
            skip = 1
            print ""
            while ((getline line < new) > 0) print line
            print ""
        }' "$document" >"$place/bench/document.md"
    cat "$place/bench/document.md" >"$document"
}

"$cargo" build -j"${JOBS:-2}" --release --package kvzone
"$cargo" build -j"${JOBS:-2}" --release --package cambium-zdb --example synced_writes

"$place/release/examples/synced_writes" "$place/bench" | tee "$place/bench/synced_writes.txt"
# median: 1 thread 8417/s, 16 threads 71394/s, ratio 8.48
sed -n 's|^median: 1 thread \(.*\)/s, \(.*\) threads \(.*\)/s, ratio \(.*\)$|\1 \2 \3 \4|p' \
    "$place/bench/synced_writes.txt" |
    awk '{ printf "| | median of 5 rounds |\n|---|---:|\n"
           printf "| 1 thread | %d synced writes/s |\n| %d threads | %d synced writes/s |\n| ratio | %s |\n", $1, $2, $3, $4 }' \
        >"$place/bench/new.txt"
[ -s "$place/bench/new.txt" ] || {
    printf 'bench: synced_writes said no median\n' >&2
    exit 3
}
between_markers synced-writes

# A store that is missing is named, and leaves its cells empty.
status=0
for table in zdb/table1 zdb/table2 zdb/table3; do
    "$place/release/kvzone" reproduce "$table" --scale "${BENCH_SCALE:-0.01}" \
        --repeat "${BENCH_ROUNDS:-5}" --dir "$place/bench" --update "$document" || status=$?
done
figure() {
    "$place/release/kvzone" reproduce "forestdb/$1" --dir "$place/bench" \
        --update "$document" "${@:2}" || status=$?
}
for name in fig10 fig12 fig13; do
    figure "$name"
done
figures=${BENCH_FIGURES:-0.0018}
figure fig14 --scale "$figures" --points 32,1024
for name in fig16 fig17; do
    figure "$name" --scale "$figures"
done
# Every store that is here, ours and others', under four workloads.
folder=docs/benchmarks
mkdir -p "$folder"
"$place/release/kvzone" run --stores all \
    --workload fill-random,read-random,overwrite,ycsb-a \
    --keys "${BENCH_KEYS:-100k}" --repeat 3 --dir "$place/bench" \
    --json "$place/bench/comparison.json" \
    --html "$folder/comparison.html" --svg "$folder" >"$folder/comparison.txt" || status=$?
printf 'bench: %s\n' "$folder/comparison.html" >&2
exit "$status"
