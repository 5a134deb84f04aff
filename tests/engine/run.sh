#!/bin/bash
# run.sh [--install] [pytest options] - kvway in front of two real vLLM engines on the CPU.
#
#   KVW_ENGINE_VENV   Python environment with vLLM   (default build-engine/venv)
#   KVW_ENGINE_MODEL  model directory                (default build-engine/tiny, made here)
#   KVW_BUILD         build directory with kvway     (default build-gcc)
#
# --install makes the environment first: 3 minutes, 7 GB of disk, a package index.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
export KVW_ENGINE_VENV=${KVW_ENGINE_VENV:-$root/build-engine/venv}
export KVW_ENGINE_MODEL=${KVW_ENGINE_MODEL:-$root/build-engine/tiny}
export KVW_BUILD=${KVW_BUILD:-$root/build-gcc}

if [ "${1:-}" = --install ]; then
	shift
	[ -x "$KVW_ENGINE_VENV/bin/vllm" ] || tests/engine/install_vllm_cpu.sh "$KVW_ENGINE_VENV"
fi
if [ ! -x "$KVW_ENGINE_VENV/bin/vllm" ]; then
	echo "no vLLM in $KVW_ENGINE_VENV: set KVW_ENGINE_VENV, or run this with --install" >&2
	exit 1
fi
if [ ! -x "$KVW_BUILD/src/router/kvway" ]; then
	echo "no kvway in $KVW_BUILD: run tests/run.sh --quick first, or set KVW_BUILD" >&2
	exit 1
fi
[ -f "$KVW_ENGINE_MODEL/config.json" ] ||
	"$KVW_ENGINE_VENV/bin/python" tests/engine/mk_tiny_model.py "$KVW_ENGINE_MODEL"
tests/sdk.sh
exec build-venv/bin/python -m pytest -v -p no:cacheprovider tests/engine "$@"
