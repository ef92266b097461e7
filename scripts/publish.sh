#!/bin/sh
# Publishes the crates that are not internal (`publish = false`), each behind those it needs.
# Usage: publish.sh            packages and builds them all, and publishes nothing
#        publish.sh --publish  publishes them; needs `cargo login` and Cargo 1.90 or newer
set -eu
cd "$(dirname "$0")/.."

[ -z "$(git status --porcelain)" ] || {
    echo "publish: there are changes that are not committed" >&2
    exit 1
}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
grep -q "^## \[$version\]" CHANGELOG.md || {
    echo "publish: CHANGELOG.md has no section [$version]" >&2
    exit 1
}
case ${1:-} in
--publish) exec cargo publish --workspace --locked ;;
"") exec cargo publish --workspace --locked --dry-run ;;
*)
    echo "usage: publish.sh [--publish]" >&2
    exit 2
    ;;
esac
