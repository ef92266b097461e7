#!/usr/bin/env bash
# Measures the tables of docs/benchmarks.md that take no more than minutes, and puts the
# results between their markers: synced writes alone and together, the tables of the
# ZDB paper. Then every store that is here beside every other, into docs/benchmarks/: four
# workloads, and what each store still has after a kill; for each a page, its charts,
# and its tables as text, and a README that shows them. Under 30 minutes on two cores, the
# build included. On a machine that does other work, believe ratios more than rates.
#
#   BENCH_KEYS     entries of that comparison (100k)
#   BENCH_ROUNDS   rounds in which stores take turns (5)
#   BENCH_SCALE    share of the ZDB paper's 100 million entries (0.01)
#   BENCH_FEATURES stores that are compiled in besides, such as redb,fjall (none)
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

document=docs/benchmarks.md
folder=docs/benchmarks
cargo=${CARGO:-cargo}
place=${CARGO_TARGET_DIR:-target}
rounds=${BENCH_ROUNDS:-5}
mkdir -p "$place/bench" "$folder"

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

"$cargo" build -j"${JOBS:-2}" --release --package kvzone \
    --features "${BENCH_FEATURES:-}"
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
        --repeat "$rounds" --dir "$place/bench" --update "$document" || status=$?
done

# A page, charts and text of one run: its name, and the options of `kvzone run`.
compare() {
    local name=$1
    shift
    rm -f "$folder/$name".html "$folder/$name".txt "$folder/$name".json
    rm -rf "${folder:?}/$name"
    "$place/release/kvzone" run --stores all "$@" --repeat "$rounds" --dir "$place/bench" \
        --json "$place/bench/$name.json" --html "$folder/$name.html" \
        --svg "$folder/$name" >"$folder/$name.txt" || status=$?
}
compare comparison --workload fill-random,read-random,overwrite,ycsb-a --keys "${BENCH_KEYS:-100k}"
compare recovery --workload ycsb-a --keys 20k --operations 2k --durability synced --reopen kill

# What is written for people to read in a browser of files.
show() {
    printf '\n## %s\n\nAs a page: [%s](%s).\n\n```text\n' "$1" "$2.html" "$2.html"
    cat "$folder/$2.txt"
    printf '```\n'
    shift 2
    for chart in "$@"; do
        [ -f "$folder/$chart.svg" ] && printf '\n![%s](%s.svg)\n' "$chart" "$chart"
    done
    return 0
}
{
    printf '# All stores, side by side\n\nMade by `make bench`; [how to read it](../kvzone.md).\n'
    printf 'Numbers belong to the machine and the moment: make your own.\n'
    show 'Four workloads' comparison \
        comparison/{fill-random,read-random,overwrite,ycsb-a}-{throughput,latency,cpu}
    show 'After a kill' recovery recovery/ycsb-a-{reopen,throughput,latency}
} >"$folder/README.md"
printf 'bench: %s\n' "$folder/README.md" >&2
exit "$status"
