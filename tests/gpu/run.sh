#!/bin/bash
# run.sh - the GPU tier on a real device: every copy and turn test of tests/unit/cache/gpu, plainly and under
# compute-sanitizer, and the connector's loads and stores against a stream of an engine.
#
# Without a CUDA device nothing can be run here; a line says so, and the exit status is 0 as for any test that is
# skipped. GPU_REQUIRED=1 makes that a failure. Options of the build: GPU_BUILD names its directory.
set -u
cd "$(dirname "$0")/../.." || exit 1

usage() {
	cat <<'END'
usage: tests/gpu/run.sh [--quick] [--no-build] [--help]

  --quick      without compute-sanitizer
  --no-build   with what is in the build directory, made on another machine

Environment:
  GPU_BUILD       build directory (build-gpu)
  GPU_DEVICE      number of the device (0)
  GPU_PYTHON      the Python that has torch and pytest (python3)
  GPU_REQUIRED    1: a machine without a device is a failure

The last line is `N passed, M failed, K skipped`.
END
}

quick=no make=yes
for option in "$@"; do
	case $option in
	--quick) quick=yes ;;
	--no-build) make=no ;;
	-h | --help)
		usage
		exit 0
		;;
	*)
		usage >&2
		exit 2
		;;
	esac
done

build=${GPU_BUILD:-$PWD/build-gpu}
device=${GPU_DEVICE:-0}
passed=0 failed=0 skipped=0

skip() { # WHAT WHY
	echo "SKIPPED $1: $2"
	skipped=$((skipped + 1))
}

try() { # NAME COMMAND...
	local name=$1 begun=$SECONDS
	shift
	if "$@" >"$build/gpu-test.log" 2>&1; then
		echo "ok      $name ($((SECONDS - begun)) s)"
		passed=$((passed + 1))
	else
		echo "FAILED  $name (status $?)"
		tail -n 40 "$build/gpu-test.log"
		failed=$((failed + 1))
	fi
}

finish() {
	echo "$passed passed, $failed failed, $skipped skipped"
	[ $failed -eq 0 ]
	exit
}

listing=$(nvidia-smi -L 2>/dev/null) || listing=
if [ -z "$listing" ] && [ ! -e /dev/nvidia0 ]; then
	skip "all of tests/gpu" "this machine has no CUDA device (no nvidia-smi that lists one, no /dev/nvidia0): nothing was run"
	[ "${GPU_REQUIRED:-0}" = 1 ] && failed=1
	finish
fi
echo "$listing"

here=tests/unit/cache/gpu
build_it() {
	deploy/packages.sh build test || return 1
	if [ ! -f "$build/build.ninja" ]; then
		meson setup "$build" -Dwerror=true -Dbench=false >"$build.log" 2>&1 || {
			cat "$build.log" >&2
			return 1
		}
	fi
	ninja -C "$build" $here/cache_gpu_copy_test $here/cache_gpu_turn_test $here/cache_gpu_header_c cache/core/libkvtier.so.1.0.0 \
		cache/gpu/libkvtier_cuda.so.1.0.0 >"$build/gpu-build.log" 2>&1 || {
		tail -n 40 "$build/gpu-build.log" >&2
		return 1
	}
}
if [ $make = yes ]; then build_it || exit 1; fi
grep -q . "$build/cache/gpu/kernels.fatbin" 2>/dev/null ||
	skip "kernel, staging and keys that turn" "no nvcc: this build has no kernel, and its tests run by copies"

export KVT_GPU_TEST_DEVICE=$device KVT_GPU_TEST_LIBRARY=$build/cache/gpu/libkvtier_cuda.so.1
export KVW_DRIVER_THREADS=1 # the driver's own, which tests/check_threads.c need not know
unset KVT_GPU_TEST_DRIVER
test=$build/$here/cache_gpu_copy_test
turn=$build/$here/cache_gpu_turn_test
try "copies compared with the naive way" "$test"
try "keys turned, compared with the naive way" "$turn"
python=${GPU_PYTHON:-python3}
export KVTIER_LIBRARY=$build/cache/core/libkvtier.so.1
# Installed, the CUDA backend lies in the folder of libkvtier; in a build directory it does not.
export LD_LIBRARY_PATH=$build/cache/gpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if "$python" -c 'import pytest, sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
	try "the connector's loads and stores, by streams" "$python" -m pytest -q -p no:cacheprovider tests/gpu/test_streams.py
else
	skip "the connector's loads and stores, by streams" "$python has no torch with CUDA, or no pytest"
fi
if [ $quick = no ]; then
	sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
	if [ -x "$sanitizer" ]; then
		for tool in memcheck racecheck synccheck; do
			try "compute-sanitizer $tool" "$sanitizer" --tool $tool --error-exitcode 9 "$test"
			try "compute-sanitizer $tool, keys turned" "$sanitizer" --tool $tool --error-exitcode 9 "$turn"
		done
		# It does not know what cuMemcpyBatchAsync writes (2025.3): with chunks that need no such call.
		KVT_GPU_TEST_WHOLE=1 try "compute-sanitizer initcheck" "$sanitizer" --tool initcheck --error-exitcode 9 "$test"
	else
		skip "compute-sanitizer" "it is not installed; it comes with the CUDA Toolkit"
	fi
fi
finish
