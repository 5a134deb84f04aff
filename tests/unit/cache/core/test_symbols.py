#!/usr/bin/env python3
"""test_symbols.py LIBRARY HEADER... - the library shows what the headers declare, and nothing else.

Each symbol has a version, KVTIER_1 or a later one.
"""

import re
import subprocess
import sys


def declared(header):
    text = re.sub(r"/\*.*?\*/", "", open(header).read(), flags=re.S)
    return set(re.findall(r"KVT_API[^;]*?\b(kvt_[a-z0-9_]+)\s*\(", text))


def shown(library):
    out = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--with-symbol-versions", library],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    names = {line.split()[2] for line in out.splitlines() if line.split()[1] in "TtDdBbRrWwVv"}
    return {re.sub(r"@@KVTIER_[1-9]$", "", name) for name in names}


def main(library, *headers):
    want = set().union(*map(declared, headers))
    have = shown(library)
    for name in sorted(want - have):
        print(f"not in the library: {name}")
    for name in sorted(have - want):
        print(f"not in the headers: {name}")
    return 0 if want == have and want else 1


sys.exit(main(*sys.argv[1:]))
