#!/usr/bin/env bash
# Runs one `kvzone run` twice, again and again, and counts how often the two agree within
# the spread that they print: neither is worse than the other by `kvzone compare`.
# usage: scripts/agreement.sh [TRIES [OPTION-OF-RUN...]]
set -euo pipefail

tries=${1:-10}
shift || true
[ $# -gt 0 ] || set -- --stores zdb,forest,wisckey --workload read-random --keys 100k --repeat 5
kvzone=${KVZONE:-target/release/kvzone}
folder=$(mktemp -d "${TMPDIR:-/tmp}/agreement-XXXXXX")
trap 'rm -rf "$folder"' EXIT

agreed=0
for try in $(seq "$tries"); do
    for which in first second; do
        "$kvzone" run "$@" --dir "$folder" --json "$folder/$which.json" >"$folder/text" 2>&1 || {
            cat "$folder/text" >&2
            exit 3
        }
    done
    if "$kvzone" compare "$folder/first.json" "$folder/second.json" >"$folder/forth" &&
        "$kvzone" compare "$folder/second.json" "$folder/first.json" >"$folder/back"; then
        agreed=$((agreed + 1))
        echo "try $try agrees"
    else
        echo "try $try differs:"
        cat "$folder/forth"
    fi
done
echo "$agreed of $tries tries agree: kvzone run $*"
