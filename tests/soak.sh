#!/bin/sh
# soak.sh [INSERTS] - the prefix tree at its byte limit for 50 million inserts.
#
# Builds build-gcc like run.sh, prints memory and the tree's counters twenty times on the way, and fails if
# memory was not flat or the tree is not sound at the end. Some two minutes on two cores.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=${SOAK_BUILD:-$root/build-gcc}
program=tests/unit/routing/routing_radix_soak_test

if [ ! -f "$build/build.ninja" ]; then
	meson setup "$build" "$root" >&2
fi
ninja -C "$build" "$program" >&2
SOAK_INSERTS=${1:-50000000} exec "$build/$program"
