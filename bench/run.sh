#!/bin/sh
# run.sh NAME [options] - one benchmark: builds release, installs the peers, measures, prints.
#
# A table goes to standard error, one JSON object per line to standard output. The build directory is
# build-release in the source folder (BENCH_BUILD changes it); with BENCH_NO_BUILD=1 what is in it was made on
# another machine, and nothing is built or installed. `run.sh --help` says more.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=${BENCH_BUILD:-$root/build-release}
# The distribution's Python: the benchmarks need nothing but its standard library.
python=/usr/bin/python3

name=${1:---help}
case " $name $* " in
*' --help '* | *' -h '*) exec "$python" "$root/bench/lib_main.py" --help ;;
esac

if [ "${BENCH_NO_BUILD:-0}" = 1 ]; then
	exec "$python" "$root/bench/lib_main.py" --build "$build" "$@"
fi
targets=$("$python" "$root/bench/lib_main.py" --targets "$@") || exit 2
case "$name $*" in
proxy\ * | tls\ * | stream\ * | idle\ * | routers\ * | cache\ * | l2\ * | engine\ * | tables\ * | fleet\ * | replicas\ * | all\ * | trace\ *--overload*) groups='build peers' ;;
*) groups=build ;;
esac
# shellcheck disable=SC2086 # group and target names are words
"$root/deploy/packages.sh" $groups >&2
if [ ! -f "$build/build.ninja" ]; then
	meson setup "$build" "$root" --buildtype=release -Dtests=false >&2
fi
# shellcheck disable=SC2086
ninja -C "$build" $targets >&2

exec "$python" "$root/bench/lib_main.py" --build "$build" "$@"
