#!/usr/bin/env python3
"""circles.py BUILD [ROOM...] - which files of one room call each other in a circle.

Includes say little here: the files of a room share one header. So this reads the objects that were
built: file A stands on file B if A's object lacks a symbol that B's object defines, be it a function
or data. A room is a folder; the compile commands of BUILD say which object belongs to which source.

A circle that is not in ROOMS is a fault, and so is an entry of ROOMS that is no circle any more, so
that the table only shrinks. Rooms on the command line are looked at whether they are in the table
or not; `--calls` prints each file with those that it stands on. Exit status 0: no fault; 1: faults,
printed; 77: nothing was built, or this machine has no nm.
"""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Rooms to look at, and in each the circles that are allowed: files without suffix, and why.
ROOMS = {
    "config": [],
    "src/common/base": [],
    "src/common/http": [],
    "src/common/metrics": [],
    "src/common/redis": [
        (
            {"inquiry", "redis", "topology_cluster", "topology_sentinel", "topology_single"},
            "redis.c creates the topology that a URL names and asks it for servers; a topology finds them "
            "out by commands that it sends through redis.c, as topology.h says",
        ),
    ],
    "src/common/server": [],
    "src/common/settings": [],
    "src/common/tls": [],
    "src/common/wire": [],
    "src/router/admission": [],
    "src/router/proxy": [],
    "src/router/proxy/steps": [],
    "src/router/trace": [],
    "src/router/fleet": [],
    "src/router/fleet/discovery": [],
    "src/router/fleet/wake": [],
    "src/router/feeds": [],
    "routing": [
        (
            {"radix_evict", "radix_hold", "radix_pool"},
            "a pool without slots evicts a branch into itself, which takes holders out of nodes and gives "
            "their slots back to the pool",
        ),
    ],
    "cache/chunk": [],
    "cache/command": [],
    "cache/core": [
        (
            {"barrier", "generations", "stores"},
            "an erase's barrier raises a generation and hears when that is made; names and the line of stores change "
            "together; a store that has ended lets its barrier go on",
        ),
    ],
    "cache/daemon": [
        (
            {"catalog", "catalog_file"},
            "each change of the names is recorded in the file, and reading the file makes the same "
            "changes again",
        ),
    ],
    "cache/events": [],
    "cache/gpu": [],
    "cache/index": [],
    "cache/io": [],
    "cache/io/testing": [],
    "cache/lmcache": [],
    "cache/memory": [],
    "cache/options": [],
    "cache/policies": [],
    "cache/protect": [],
    "cache/tiers": [],
    "cache/tiers/kvtierd": [
        (
            {
                "kvtierd",
                "kvtierd_erase",
                "kvtierd_leases",
                "kvtierd_probe",
                "kvtierd_read",
                "kvtierd_table",
                "kvtierd_write",
            },
            "kvtierd.c begins jobs by kind of request, one file for each, and these end, count and "
            "report through it; what one finds out, the others take into account",
        ),
    ],
    "cache/tiers/nvme": [],
    "cache/tiers/redis": [],
}


class CannotCheck(Exception):
    """What this machine, or this build, lacks."""


@functools.cache
def objects_by_folder(build):
    """Folder -> {file name without suffix: its object}, of the C files that were built."""
    commands = build / "compile_commands.json"
    if not commands.is_file():
        raise CannotCheck(f"{commands} is missing")
    found = {}
    for command in json.loads(commands.read_text()):
        source = os.path.realpath(os.path.join(command["directory"], command["file"]))
        folder, name = os.path.split(source)
        stem, suffix = os.path.splitext(name)
        made = os.path.join(command["directory"], command["output"])
        if suffix == ".c" and os.path.isfile(made):
            found.setdefault(folder, {}).setdefault(stem, made)
    return found


def objects_of(build, room):
    """File name without suffix -> its object, of the C files that lie in the room itself."""
    found = objects_by_folder(build).get(str(ROOT / room))
    if not found:
        raise CannotCheck(f"nothing of {room} was built in {build}")
    return found


def symbols(objects):
    """File -> what its object defines for others, and what it wants of others."""
    known = {name: (set(), set()) for name in objects}
    name_of = {made: name for name, made in objects.items()}
    out = subprocess.run(["nm", "-P", "-A", *name_of], capture_output=True, check=True, text=True)
    for line in out.stdout.splitlines():
        made, _, rest = line.partition(": ")
        symbol, kind = rest.split()[:2]
        defines, wants = known[name_of[made]]
        if kind in "Uwv":
            wants.add(symbol)
        elif kind.isupper():
            defines.add(symbol)
    return known


def stands_on(objects):
    """File -> {file that it stands on: the symbols}."""
    known = symbols(objects)
    if not any(defines for defines, _ in known.values()):
        raise CannotCheck("nm reads no symbols from these objects")
    home = {s: name for name, (defines, _) in known.items() for s in defines}
    edges = {}
    for name, (_, wants) in known.items():
        edges[name] = {}
        for symbol in sorted(wants & home.keys()):
            if home[symbol] != name:
                edges[name].setdefault(home[symbol], []).append(symbol)
    return edges


def reached(edges, start):
    seen, todo = set(), [start]
    while todo:
        for other in edges[todo.pop()]:
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def circles_of(edges):
    """The largest sets of files of which each reaches each."""
    reach = {name: reached(edges, name) for name in edges}
    rings = {frozenset(o for o in reach[n] if n in reach[o]) for n in edges if n in reach[n]}
    return sorted(rings, key=sorted)


def describe(edges, ring):
    for name in sorted(ring):
        for other in sorted(ring & edges[name].keys()):
            yield f"    {name} -> {other}: {', '.join(edges[name][other])}"


def check(build, room):
    edges = stands_on(objects_of(build, room))
    rings = circles_of(edges)
    allowed = ROOMS.get(room, [])
    for ring in rings:
        if any(ring <= set(files) for files, _ in allowed):
            continue
        yield f"{room}: these files call each other in a circle: {', '.join(sorted(ring))}"
        yield from describe(edges, ring)
    for files, _ in allowed:
        if frozenset(files) not in rings:
            yield f"{room}: circles.py allows a circle that is none: {', '.join(sorted(files))}"


def main():
    words = [w for w in sys.argv[1:] if w != "--calls"]
    if not words:
        print(__doc__)
        return 2
    build, rooms = pathlib.Path(words[0]), words[1:] or ROOMS
    status = 0
    for room in rooms:
        try:
            if not shutil.which("nm"):
                raise CannotCheck("no nm")
            if "--calls" in sys.argv:
                for name, others in sorted(stands_on(objects_of(build, room)).items()):
                    print(f"{room}/{name}: {' '.join(sorted(others))}")
                continue
            faults = list(check(build, room))
        except CannotCheck as reason:
            print(f"{room}: not checked: {reason}")
            status = status or 77
            continue
        for fault in faults:
            print(fault)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
