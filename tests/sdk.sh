#!/bin/bash
# sdk.sh - the OpenAI SDK in build-venv, an environment that also sees the system's pytest.
#
# Does nothing when it is there already. Exit status 1, with a line on standard error, when it
# cannot be installed: the tests that need it are then skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
venv=build-venv

if "$venv/bin/python" -c 'import openai, pytest' 2>/dev/null; then
	exit 0
fi
echo "== OpenAI SDK into $venv" >&2
rm -rf "$venv"
if /usr/bin/python3 -m venv --system-site-packages "$venv" >/dev/null &&
	"$venv/bin/pip" install --quiet --disable-pip-version-check openai >&2; then
	exit 0
fi
rm -rf "$venv"
echo "the OpenAI SDK could not be installed (no package index?): its tests are skipped" >&2
exit 1
