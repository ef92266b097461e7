#!/usr/bin/env bash
# Holds KVZone against a loop in C that shares nothing with it: both do the same work on
# LevelDB in turns, and the medians of their rates must agree. Needs a C compiler, python3,
# `make peers` and a quiet machine; so it is no part of the tests.
#
#   BESIDE_KEYS     entries of 16 + 100 bytes (1000000)
#   BESIDE_ROUNDS   rounds (5)
#   BESIDE_PERCENT  by how much they may differ (15)
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

keys=${BESIDE_KEYS:-1000000}
rounds=${BESIDE_ROUNDS:-5}
percent=${BESIDE_PERCENT:-15}
built=$(realpath -m "${CARGO_TARGET_DIR:-target}")
"${CARGO:-cargo}" build -j"${JOBS:-2}" --release --package kvzone
place=$(mktemp -d "$built/beside-c.XXXXXX")
trap 'rm -rf "$place"' EXIT
library=$("$built/release/kvzone" list stores leveldb --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["path"] or "")')
[ -n "$library" ] || { echo 'beside-c: LevelDB is not here: make peers' >&2; exit 3; }
cc -O2 -Wall -o "$place/leveldb" crates/kvzone/tests/foreign/leveldb.c -ldl

for round in $(seq "$rounds"); do
    # Libraries that LevelDB needs lie beside it.
    LD_LIBRARY_PATH=$(dirname "$library") "$place/leveldb" "$library" "$place/store" "$keys" 2 >>"$place/foreign.txt"
    rm -rf "$place/store"
    for workload in fill-random read-random scan-random; do
        until=(--seconds 2)
        if [ "$workload" = fill-random ]; then until=(--operations "$keys"); fi
        scan=()
        if [ "$workload" = scan-random ]; then scan=(--scan-length 100); fi
        "$built/release/kvzone" run --stores leveldb --workload "$workload" --keys "$keys" \
            "${until[@]}" "${scan[@]}" --repeat 1 --seed "$round" --dir "$place" \
            --json "$place/out.json" >/dev/null
        python3 -c '
import json, sys
run = [run for run in json.load(open(sys.argv[1]))["runs"]][-1]
print(sys.argv[2], round(run["ops_per_second"]))' "$place/out.json" "$workload" >>"$place/own.txt"
    done
done

python3 - "$place" "$percent" <<'PYTHON'
import collections, pathlib, statistics, sys

def medians(name):
    rates = collections.defaultdict(list)
    for line in pathlib.Path(sys.argv[1], name).read_text().splitlines():
        workload, rate = line.split()
        rates[workload].append(float(rate))
    return {workload: statistics.median(found) for workload, found in rates.items()}

foreign, own = medians("foreign.txt"), medians("own.txt")
apart = False
for workload, rate in foreign.items():
    ratio = own[workload] / rate
    apart |= abs(ratio - 1) * 100 > float(sys.argv[2])
    print(f"{workload}: kvzone {own[workload]:.0f}/s, the C loop {rate:.0f}/s, ratio {ratio:.2f}")
sys.exit(1 if apart else 0)
PYTHON
