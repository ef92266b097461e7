#!/usr/bin/env bash
# Builds the source distribution of the Python package, and from it the wheel, in folder $1.
# maturin reads which C library the machine code needs, and names the wheel after it: a wheel
# that was built on an old system runs on every newer one.
# Exit status 2 where it cannot be tried: no venv, or no network for pip.
set -euo pipefail
mkdir -p "$1"
out=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}

python3 -c 'import ensurepip' 2>/dev/null || {
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq && apt-get install -y -qq python3-venv >&2
    else
        echo "wheel: python3 has no venv; on Debian: sudo apt-get install python3-venv" >&2
        exit 2
    fi
}
tools=$target/wheel-tools
if ! "$tools/bin/maturin" --version >/dev/null 2>&1; then
    python3 -m venv "$tools"
    "$tools/bin/pip" --quiet --disable-pip-version-check install 'maturin>=1.9,<2' || {
        echo "wheel: pip reaches no package index, where maturin is" >&2
        exit 2
    }
fi
rm -f "$out"/cambium-*
# Crates of others stay in target/. Ours are built in a folder that maturin unpacks.
CARGO_TARGET_DIR=$target "$tools/bin/maturin" build --release --sdist --jobs "${JOBS:-2}" --out "$out" >&2
ls "$out"/cambium-*.whl "$out"/cambium-*.tar.gz
