#!/bin/sh
# pytest.sh FILE BUILD_DIR [PART] - runs one test file, or the case files of a folder; its report goes to BUILD_DIR/junit/NAME.xml.
#
# PART, such as 2/3, is every third test from the second on; its report is NAME.2.xml.
# Two lines say how the file runs alone, and in which folder the logs of its processes and their configurations are left
# when a case fails. (In the build directory, the paths of some sockets would be too long.)
# Those that need clients of others with the environment that tests/run.sh makes for them (tests/sdk.sh), else with the
# system's Python.
set -eu
file=$1 build=$2 part=${3:-}
name=$(basename "$file" .py)
report=$name${part:+.${part%/*}}
export KVW_PART="$part"
root=$(cd "$(dirname "$0")/../.." && pwd)
python=/usr/bin/python3
case $name in
test_sdk | test_sdk_keys | test_kubernetes_clients)
	[ ! -x "$root/build-venv/bin/python" ] || python=$root/build-venv/bin/python
	;;
esac
# Modules are compiled, and pytest's assertions written, once for all builds; none of it goes into the source tree.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$root/build-pycache"
# pytest shows where Python crashed only while it runs tests; with this, a crash before or after them is shown, too.
export PYTHONFAULTHANDLER=1
logs=$(mktemp -d /tmp/kvw.XXXXXX)
shown_build=$build
case $build in "$root"/*) shown_build=${build#"$root/"} ;; esac
shown=tests/integration/$name.py # of case files tally.py names the case by -k
[ -f "$file" ] || shown="tests/$name"
echo "alone: KVW_BUILD=$shown_build${KVW_SANITIZED:+ KVW_SANITIZED=1}${KVW_PATIENCE:+ KVW_PATIENCE=$KVW_PATIENCE}" \
	"${python#"$root/"} -m pytest $shown"
echo "logs: $logs"
status=0
"$python" -m pytest -q -p no:cacheprovider --basetemp "$logs" --junitxml "$build/junit/$report.xml" "$file" || status=$?
[ $status -ne 0 ] || rm -rf "$logs"
exit $status
