#!/bin/sh
# pytest.sh FILE BUILD_DIR - runs one test file; its report goes to BUILD_DIR/junit/NAME.xml.
#
# With the environment that tests/run.sh makes for the OpenAI SDK, else with the system's Python.
set -eu
file=$1 build=$2
name=$(basename "$file" .py)
root=$(cd "$(dirname "$0")/../.." && pwd)
python=/usr/bin/python3
if [ "$name" = test_sdk ] && [ -x "$root/build-venv/bin/python" ]; then
	python=$root/build-venv/bin/python
fi
exec "$python" -m pytest -q -p no:cacheprovider --junitxml "$build/junit/$name.xml" "$file"
