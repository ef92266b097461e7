#!/usr/bin/env bash
# Measures every kind of work, small to large values, each store that is here, and writes
# docs/matrix.md, its page, its chart and the copies of its cells. Within two hours on two cores; one that was
# stopped goes on where it was. On a machine that does other work, believe ratios more
# than rates. The tables of papers have their commands beside them (docs/benchmarks.md).
#
#   BENCH_OPTIONS  further options of `kvzone matrix`, such as --quick (none)
#   BENCH_FEATURES stores that are compiled in besides, such as redb,fjall (none)
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

place=${CARGO_TARGET_DIR:-target}
"${CARGO:-cargo}" build -j"${JOBS:-2}" --release --package kvzone --features "${BENCH_FEATURES:-}"
mkdir -p "$place/bench"
resume=()
if [ -f "$place/bench/matrix.json" ]; then resume=(--resume); fi
# The options are words.
# shellcheck disable=SC2086
"$place/release/kvzone" matrix --dir "$place/bench" --json "$place/bench/matrix.json" "${resume[@]}" \
    --markdown docs/matrix.md --html docs/matrix.html --svg docs/matrix.svg ${BENCH_OPTIONS:-}
# Commands of the book run in a suite, unless they say why not.
sed -i 's/^```sh$/```sh ignore=takes-minutes/' docs/matrix.md
"${CARGO:-cargo}" xtask cells
# Measured to its end: the next begins anew. After a failure it goes on, and tries again
# what failed.
rm "$place/bench/matrix.json"
