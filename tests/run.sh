#!/bin/bash
# run.sh - builds everything with gcc and clang and runs every test.
#
# Works on a fresh Debian 12 or Ubuntu 24.04: missing packages are installed first. Build
# directories are build-gcc, build-asan, build-tsan and build-clang in the checkout (ignored by
# git), so a second run rebuilds only what changed. The SDKs of OpenAI and Anthropic, the client of
# Kubernetes and Helm, which no distribution has, go into build-venv and build-helm; without a package index
# their tests are skipped, and the table says so.
set -u
cd "$(dirname "$0")/.." || exit 1

usage() {
	cat <<'END'
usage: tests/run.sh [--quick] [--only SUITE]... [--help]

Suites, in this order:
  lint         layering, sizes, links, scripts
  unit         Check programs; the whole built with gcc, and with clang unless a sanitizer build
               does that, warnings as errors
  integration  pytest, real processes on loopback
  asan         unit tests and load tests with AddressSanitizer and UBSan
  tsan         the same with ThreadSanitizer
  fuzz         each libFuzzer target for some seconds

  --quick      lint, unit (gcc only) and integration
  --only NAME  that suite; may be given several times
  --help       this text

While it runs, a line a minute says how far a build or a suite is, and which tests take longest. The
builds for the sanitizers compile, at the lowest priority, while the tests before them run, and at the
usual one once those have ended; fuzzing runs, at a lower priority, during the tests of ThreadSanitizer's
build.

No test is tried twice. Above the last line stands, for each test that failed, the command that runs it
alone, the folder in /tmp where the logs and configurations of its processes are left, and the lines of
its output that name the failure.

The last line is `N passed, M failed` or `N passed, M failed, K skipped`; the exit status is 0
when nothing failed. Opt-in tests with real engines: tests/engine/README.md.
END
}

quick=no
only=
while [ $# -gt 0 ]; do
	case $1 in
	--quick) quick=yes ;;
	--only)
		case ${2:-} in
		lint | unit | integration | asan | tsan | fuzz) only="$only $2" ;;
		*)
			echo "tests/run.sh: --only wants one of lint unit integration asan tsan fuzz" >&2
			exit 2
			;;
		esac
		shift
		;;
	-h | --help)
		usage
		exit 0
		;;
	*)
		echo "tests/run.sh: unknown option '$1'" >&2
		usage >&2
		exit 2
		;;
	esac
	shift
done

suites=${only:-lint unit integration asan tsan fuzz}
[ $quick = no ] || suites=${only:-lint unit integration}
wanted() { [[ " $suites " == *" $1 "* ]]; }

deploy/packages.sh build test || exit 1
getent ahosts localhost >/dev/null || {
	echo "tests/run.sh: the name localhost has no address here, expected a line '127.0.0.1 localhost' in /etc/hosts" >&2
	exit 1
}

rows=$(mktemp)
ahead=   # process that compiles for a later suite
fuzzing= # process that fuzzes while another suite waits
trap 'rm -f "$rows"; [ -z "$ahead$fuzzing" ] || kill $ahead $fuzzing 2>/dev/null' EXIT
python=/usr/bin/python3
jobs=$(nproc)
more=$((jobs * 3)) # many tests only wait,
most=$((jobs * 4)) # those of integration for most of their time
fixed_addresses=() # a command before `meson test`
# gold links in a third of the time that ld takes; binutils has both.
linker=$(command -v ld.gold >/dev/null && echo gold)
# Line tables are all that a sanitizer's report shows; the kernel for GPUs is nothing that it sees. Both compile sooner. An
# optimiser would make these two builds three times as long, and their tests, which mostly wait, hardly shorter.
for_sanitizers=(-Doptimization=0 -Dc_args=-gline-tables-only -Dcuda=disabled)

# Fingerprint of the options: another set than last time makes a new configuration.
configure() { # DIR COMPILER OPTIONS...
	local dir=$1 compiler=$2
	shift 2
	local stamp="$compiler $linker $*"
	if [ "$(cat "$dir/.kvw-options" 2>/dev/null)" = "$stamp" ]; then
		return 0
	fi
	rm -rf "$dir"
	CC=$compiler CC_LD=$linker CXX_LD=$linker meson setup "$dir" -Dwerror=true "$@" >"$dir.log" 2>&1 || {
		cat "$dir.log" >&2
		return 1
	}
	mv "$dir.log" "$dir/"
	echo "$stamp" >"$dir/.kvw-options"
}

# What ninja compiles in a build directory: everything, or nothing but what its tests need.
targets_of() { # DIR
	if [ "$1" = build-tsan ]; then
		$python tests/threads.py targets "$1"
	else
		echo all
	fi
}

compile() { # LABEL DIR COMPILER OPTIONS...
	local label=$1 dir=$2 targets=()
	shift
	configure "$@" && mapfile -t targets < <(targets_of "$dir") && [ ${#targets[@]} -gt 0 ] &&
		$python tests/progress.py "build $label" "$dir/build.log" ninja -C "$dir" -j "$jobs" "${targets[@]}"
}

# A build counts as one test: it must be free of warnings.
build() { # LABEL DIR COMPILER OPTIONS...
	local label=$1 started=$SECONDS
	echo "== build $label" >&2
	if compile "$@"; then
		printf 'build %s\t1\t0\t0\t%d\n' "$label" $((SECONDS - started)) >>"$rows"
		return 0
	fi
	printf 'build %s\t0\t1\t0\t%d\n' "$label" $((SECONDS - started)) >>"$rows"
	return 1
}

# Compiles in the background, at the lowest priority: tests wait for most of their time. `built` ends the build, and
# says what was wrong with it.
build_ahead() {
	ahead_build=("$@")
	(
		renice -n 19 "$BASHPID"
		compile "$@"
	) >/dev/null 2>&1 &
	ahead=$!
}

# Stops what compiles ahead and builds the rest: at the lowest priority, next to a busy program, it would not end.
built() {
	local children=()
	read -ra children 2>/dev/null <"/proc/$ahead/task/$ahead/children"
	[ ${#children[@]} -eq 0 ] || kill "${children[@]}" 2>/dev/null
	wait "$ahead"
	ahead=
	build "${ahead_build[@]}"
}

suite() { # LABEL DIR MESON_TEST_ARGUMENTS...
	local label=$1 dir=$2 started=$SECONDS log
	shift 2
	log=log-${label//[^a-z]/-}
	echo "== $label" >&2
	rm -rf "$dir/junit" "$dir/meson-logs/$log.json"
	$python tests/progress.py "$label" "$dir/$log.log" \
		"${fixed_addresses[@]}" meson test -C "$dir" --no-rebuild --print-errorlogs --logbase "$log" "$@"
	$python tests/tally.py "$label" $((SECONDS - started)) "$dir" "$log" >>"$rows"
}

build_asan() { # Fuzz targets are part of it: one compilation for both.
	build_ahead "clang asan" build-asan clang -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false \
		"${for_sanitizers[@]}"
}

build_tsan() {
	build_ahead "clang tsan" build-tsan clang -Db_sanitize=thread -Db_lundef=false "${for_sanitizers[@]}"
}

gcc_ready=no
if wanted lint || wanted unit || wanted integration; then
	build gcc build-gcc gcc && gcc_ready=yes
fi
# The sanitizer builds compile everything with clang and the same warnings.
if wanted unit && [ $quick = no ] && ! wanted asan && ! wanted fuzz && ! wanted tsan; then
	build clang build-clang clang
fi
if wanted asan || wanted fuzz; then build_asan; elif wanted tsan; then build_tsan; fi
if [ $gcc_ready = yes ]; then
	if wanted lint; then suite lint build-gcc --suite lint -t 4; fi
	if wanted unit; then suite "unit gcc" build-gcc --suite unit -t 4 --num-processes "$more"; fi
	if wanted integration; then
		tests/sdk.sh
		tests/helm.sh
		suite integration build-gcc --suite integration -t 4 --num-processes "$most"
	fi
fi
if wanted asan || wanted fuzz; then
	asan_ready=no
	built && asan_ready=yes
	if wanted tsan; then build_tsan; fi
	if [ $asan_ready = yes ]; then
		if wanted asan; then suite asan build-asan --suite unit --suite load -t 4 --num-processes "$more"; fi
		if wanted fuzz; then
			# At a lower priority: the suite after it waits for half of its time. The lowest would starve it next to
			# another busy program.
			(
				renice -n 5 "$BASHPID" >/dev/null
				suite fuzz build-asan --suite fuzz-smoke
			) &
			fuzzing=$!
		fi
	fi
fi
if wanted tsan; then
	# Some kernels randomise more address bits than ThreadSanitizer of this age can bear; where
	# a container forbids to switch that off, it must do without.
	setarch -R true 2>/dev/null && fixed_addresses=(setarch -R)
	# libzmq and what it calls are not instrumented: between its own threads everything looks like a race.
	export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp ignore_noninstrumented_modules=1${TSAN_OPTIONS:+ $TSAN_OPTIONS}"
	if built; then
		mapfile -t names < <($python tests/threads.py tests build-tsan)
		suite tsan build-tsan -t 4 --num-processes "$more" "${names[@]}"
	fi
fi
if [ -n "$fuzzing" ]; then
	wait "$fuzzing"
	fuzzing=
fi

echo
$python tests/tally.py --summary "$rows"
