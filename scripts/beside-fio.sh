#!/usr/bin/env bash
# Random direct reads of 4 KiB by the I/O layer (`kvzone device`) beside `fio`, in turns: medians
# of three rounds and their ratio. Needs fio (apt-get install fio) and python3.
# usage: scripts/beside-fio.sh DIR [SECONDS [SIZE]]
set -euo pipefail
export LC_ALL=C

folder=${1:?usage: scripts/beside-fio.sh DIR [SECONDS [SIZE]]}
seconds=${2:-2}
size=${3:-2GiB}
kvzone=${KVZONE:-target/release/kvzone}
command -v fio >/dev/null || { echo 'beside-fio: fio is not here: apt-get install fio' >&2; exit 3; }
place=$(mktemp -d "$folder/beside-fio.XXXXXX")
trap 'rm -rf "$place"' EXIT

# A file of fio's own, with bytes that do not compress.
fio --name=fill --filename="$place/file" --rw=write --bs=1M --size="${size%B}" --refill_buffers \
    --end_fsync=1 --output-format=json >/dev/null
for round in 1 2 3; do
    "$kvzone" device --dir "$place" --size "$size" --seconds "$seconds" --only random \
        --json "$place/own-$round.json" >/dev/null
    for point in psync,1 libaio,1 libaio,32 libaio,128 io_uring,1 io_uring,32 io_uring,128; do
        # No map of visited blocks: it costs time, and ours keeps none.
        fio --name=kvzone --filename="$place/file" --readonly --rw=randread --norandommap \
            --randrepeat=0 --bs=4096 --ioengine="${point%,*}" --iodepth="${point#*,}" --direct=1 \
            --time_based --runtime="${seconds}s" --output-format=json >"$place/fio-$point-$round.json"
    done
done

python3 - "$place" <<'PYTHON'
import json, pathlib, statistics, sys

place = pathlib.Path(sys.argv[1])
names = {"psync": "sync", "libaio": "aio", "io_uring": "io_uring"}
print("| back end | depth | ours/s | fio/s | ratio |\n|---|---:|---:|---:|---:|")
for engine, depth in [(e, d) for e in names for d in (1, 32, 128) if e != "psync" or d == 1]:
    ours, theirs = [], []
    for round in (1, 2, 3):
        for point in json.loads((place / f"own-{round}.json").read_text())["random_reads"]:
            if (point["backend"], point["depth"], point["direct"]) == (names[engine], depth, True):
                ours.append(point["reads_per_second"])
        text = (place / f"fio-{engine},{depth}-{round}.json").read_text()
        # Warnings may stand before the JSON.
        theirs.append(json.loads(text[text.index("{"):])["jobs"][0]["read"]["iops"])
    if not ours:
        sys.exit("beside-fio: this file system has no direct I/O")
    own, other = statistics.median(ours), statistics.median(theirs)
    print(f"| {names[engine]} | {depth} | {own:,.0f} | {other:,.0f} | {own / other:.2f} |")
PYTHON
