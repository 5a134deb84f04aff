#!/bin/sh
# smoke.sh FOLDER PROGRAM [OPTIONS] [SEEDS...] - fuzzes with one target, beginning at its seeds alone.
#
# FOLDER/found gets the inputs that reach more code. It is emptied first: what an earlier run found, perhaps in another
# version of the code, is no input of this one. An input that fails is kept as FOLDER/bad-...
set -eu

folder=$1 program=$2
shift 2
rm -rf "$folder/found"
mkdir -p "$folder/found"
exec "$program" -error_exitcode=1 -artifact_prefix="$folder/bad-" "$folder/found" "$@"
