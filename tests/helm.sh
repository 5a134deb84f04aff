#!/bin/bash
# helm.sh - Helm as a Python package in build-helm, for the test of the chart where there is no `helm`.
#
# Does nothing when either is there already. Exit status 1, with a line on standard error, when it cannot be installed:
# the chart's test is then skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
venv=build-helm

if command -v helm >/dev/null || "$venv/bin/python" -c 'import helm_python' 2>/dev/null; then
	exit 0
fi
echo "== Helm into $venv" >&2
rm -rf "$venv"
if /usr/bin/python3 -m venv "$venv" >/dev/null &&
	timeout 600 "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 15 --no-deps 'helm-python-sdk==0.2.2' >&2; then
	exit 0
fi
rm -rf "$venv"
echo "Helm could not be installed (no package index?): the test of the chart is skipped" >&2
exit 1
