#!/bin/bash
# lmcache.sh [--install] [pytest options] - stock LMCache against kvtierd and Redis, and its benchmark
# against kvbench, without a GPU.
#
#   KVW_LMCACHE_PYTHON   Python with lmcache 0.5.6         (default build-engine/lmcache/bin/python)
#   KVW_BUILD            build directory with kvtierd      (default build-gcc)
#
# --install makes the environment first: 3 minutes, 6 GB of disk, a package index.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
export KVW_LMCACHE_PYTHON=${KVW_LMCACHE_PYTHON:-$root/build-engine/lmcache/bin/python}
export KVW_BUILD=${KVW_BUILD:-$root/build-gcc}

if [ "${1:-}" = --install ]; then
	shift
	if [ ! -x "$KVW_LMCACHE_PYTHON" ]; then
		python3 -m venv build-engine/lmcache
		pip=build-engine/lmcache/bin/pip
		"$pip" install -q torch==2.13.0
		"$pip" install -q --no-deps lmcache==0.5.6 # its own list asks for CUDA packages
		"$pip" install -q 'transformers>=5.4' 'numpy<=2.3.5' msgspec pyzmq redis aiohttp aiofile \
			aiofiles fastapi uvicorn httptools httpx prometheus_client psutil py-cpuinfo \
			sortedcontainers cachetools nvtx blake3 pyyaml safetensors numba cryptography awscrt \
			opentelemetry-api opentelemetry-sdk opentelemetry-exporter-otlp \
			opentelemetry-exporter-prometheus openai
	fi
fi
if [ ! -x "$KVW_LMCACHE_PYTHON" ]; then
	echo "no LMCache: set KVW_LMCACHE_PYTHON, or run this with --install" >&2
	exit 1
fi
if [ ! -x "$KVW_BUILD/cache/daemon/kvtierd" ]; then
	echo "no kvtierd in $KVW_BUILD: build first, or set KVW_BUILD" >&2
	exit 1
fi
exec /usr/bin/python3 -m pytest -v -p no:cacheprovider tests/engine/test_lmcache_kvtierd.py \
	tests/engine/test_coordinator.py \
	tests/engine/test_lmcache_bench.py \
	tests/engine/test_lmcache_prompts.py "$@"
