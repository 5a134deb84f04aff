#!/usr/bin/env python3
"""threads.py tests|targets BUILD - what ThreadSanitizer's build runs, or compiles, as words on lines.

Tests: of suite `load` all, of suite `unit` those that start a program of threads.txt. Targets of ninja: all but the
programs of tests/unit and bench that none of these tests needs; what integration tests start (kvsim, kvbench, ...) stays.
"""

import json
import pathlib
import subprocess
import sys

LIST = pathlib.Path(__file__).with_name("threads.txt")
# Folders of the build whose programs are left out, and those of them that integration tests start by their path.
OWN = ("tests/unit/", "bench/")
STARTED = ("bench/sim/", "bench/load/")


def introspect(build, what):
    out = subprocess.run(["meson", "introspect", str(build), what], stdout=subprocess.PIPE, check=True)
    return json.loads(out.stdout)


def main():
    what, build = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    threaded = {line for line in LIST.read_text().splitlines() if line and not line.startswith("#")}
    files = {t["id"]: [pathlib.Path(f).relative_to(build) for f in t["filename"]] for t in introspect(build, "--targets")}
    chosen = []
    for test in introspect(build, "--tests"):
        suites = {suite.split(":")[-1] for suite in test["suite"]}
        programs = {pathlib.Path(test["cmd"][0]).name, *(f.name for d in test["depends"] for f in files[d])}
        if "load" in suites or ("unit" in suites and programs & threaded):
            chosen.append(test)
    if what == "tests":
        print(*(test["name"] for test in chosen), sep="\n")
        return
    needed = {file for test in chosen for target in test["depends"] for file in files[target]}
    for target in introspect(build, "--targets"):
        for file in files[target["id"]] if target["build_by_default"] else ():
            is_linked = target["type"] in ("executable", "static library")
            is_own = is_linked and str(file).startswith(OWN) and not str(file).startswith(STARTED)
            if file in needed or not is_own:
                print(file)


if __name__ == "__main__":
    main()
