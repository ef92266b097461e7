#!/usr/bin/env bash
# A cluster of three nodes on this machine, from nothing: etcd, three servers, a load that
# writes and reads; the node that leads most chains is killed with -9, the load goes on, the
# node comes back and catches up, and every acknowledged write is looked for on every node.
#
#   SECONDS_OF_LOAD   between two events (3)
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

${CARGO:-cargo} build -j"${JOBS:-2}" --release -p cambium-cli -p cambium-server
exec python3 scripts/cluster.py "${CARGO_TARGET_DIR:-target}/release" "${SECONDS_OF_LOAD:-3}"
