#!/bin/bash
# kubernetes.sh - the package kubernetes-validate in build-venv-kubernetes: schemas of every version of Kubernetes.
#
# tests/integration/test_render.py then holds rendered objects against them, strictly. By hand: it is 150 MB.
# Does nothing when it is there already. Exit status 1, with a line on standard error, when it cannot be installed.
set -u
cd "$(dirname "$0")/.." || exit 1
venv=build-venv-kubernetes

if "$venv/bin/python" -c 'import kubernetes_validate' 2>/dev/null; then
	exit 0
fi
rm -rf "$venv"
if /usr/bin/python3 -m venv "$venv" >/dev/null &&
	"$venv/bin/pip" install --quiet --disable-pip-version-check kubernetes-validate >&2; then
	exit 0
fi
rm -rf "$venv"
echo "kubernetes-validate could not be installed (no package index?)" >&2
exit 1
