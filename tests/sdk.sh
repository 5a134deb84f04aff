#!/bin/bash
# sdk.sh - the SDKs of OpenAI and Anthropic and the client of Kubernetes in build-venv, an environment that also sees the system's pytest.
#
# Does nothing when both are there already. Exit status 1, with a line on standard error, when they
# cannot be installed: the tests that need them are then skipped.
# To raise a version: change it in `packages`, run this file and `test_sdk*.py`, name it in CHANGELOG.md.
set -u
cd "$(dirname "$0")/.." || exit 1
venv=build-venv
packages='openai==3.57.0 anthropic==2.14.0 kubernetes==33.1.0'

# What is there must be these versions: an environment of before is made again.
if [ "$(cat "$venv/versions" 2>/dev/null)" = "$packages" ] &&
	"$venv/bin/python" -c 'import openai, anthropic, pytest, kubernetes' 2>/dev/null; then
	exit 0
fi
echo "== SDKs of OpenAI and Anthropic, client of Kubernetes into $venv" >&2
rm -rf "$venv"
# shellcheck disable=SC2086 # packages are words
if /usr/bin/python3 -m venv --system-site-packages "$venv" >/dev/null &&
	timeout 600 "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 15 --no-compile \
		$packages >&2; then
	printf '%s\n' "$packages" >"$venv/versions"
	exit 0
fi
rm -rf "$venv"
echo "the SDKs and the client of Kubernetes could not be installed (no package index?): their tests are skipped" >&2
exit 1
