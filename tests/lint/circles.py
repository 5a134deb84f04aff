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

import json
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
    "src/common/settings": [],
    "src/router/proxy": [],
    "src/router/fleet": [],
    "src/router/feeds": [],
    "cache/core": [],
    "cache/index": [],
    "cache/lmcache": [],
    "cache/memory": [],
    "cache/tiers/nvme": [],
}


class CannotCheck(Exception):
    """What this machine, or this build, lacks."""


def objects_of(build, room):
    """File name without suffix -> its object, of the C files that lie in the room itself."""
    commands = build / "compile_commands.json"
    if not commands.is_file():
        raise CannotCheck(f"{commands} is missing")
    found = {}
    for command in json.loads(commands.read_text()):
        source = (pathlib.Path(command["directory"]) / command["file"]).resolve()
        if source.parent != (ROOT / room).resolve() or source.suffix != ".c":
            continue
        made = pathlib.Path(command["directory"]) / command["output"]
        if made.is_file():
            found.setdefault(source.stem, made)
    if not found:
        raise CannotCheck(f"nothing of {room} was built in {build}")
    return found


def symbols(made):
    """What an object defines for others, and what it wants of others."""
    out = subprocess.run(["nm", "-P", str(made)], capture_output=True, check=True, text=True)
    defines, wants = set(), set()
    for line in out.stdout.splitlines():
        name, kind = line.split()[:2]
        if kind in "Uwv":
            wants.add(name)
        elif kind.isupper():
            defines.add(name)
    return defines, wants


def stands_on(objects):
    """File -> {file that it stands on: the symbols}."""
    known = {name: symbols(made) for name, made in objects.items()}
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
