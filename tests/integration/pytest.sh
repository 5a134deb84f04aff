#!/bin/sh
# pytest.sh FILE BUILD_DIR [PART] - runs one test file; its report goes to BUILD_DIR/junit/NAME.xml.
#
# PART, such as 2/3, is every third test from the second on; its report is NAME.2.xml.
# Those that need clients of others with the environment that tests/run.sh makes for them (tests/sdk.sh), else with the
# system's Python.
set -eu
file=$1 build=$2 part=${3:-}
name=$(basename "$file" .py)
report=$name${part:+.${part%/*}}
export KVW_PART="$part"
root=$(cd "$(dirname "$0")/../.." && pwd)
python=/usr/bin/python3
if [ -x "$root/build-venv/bin/python" ] && { [ "$name" = test_sdk ] || [ "$name" = test_kubernetes_clients ]; }; then
	python=$root/build-venv/bin/python
fi
exec "$python" -m pytest -q -p no:cacheprovider --junitxml "$build/junit/$report.xml" "$file"
