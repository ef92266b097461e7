#!/bin/sh
# Writes man pages and completions of the programs.
# Usage: pages.sh BUILT PAGES: BUILT has the programs, PAGES becomes a new folder.
set -eu
built=$1 pages=$2
cd "$(dirname "$0")/.."

rm -rf "$pages"
mkdir -p "$pages"
"$built/cambium" man "$pages"
"$built/cambium" completions bash >"$pages/cambium.bash"
"$built/cambium" completions zsh >"$pages/_cambium"
"$built/cambium" completions fish >"$pages/cambium.fish"
for package in cambium-server kvzone; do
    ${CARGO:-cargo} run --quiet -j"${JOBS:-2}" --profile test --package "$package" --example pages -- "$pages"
done
