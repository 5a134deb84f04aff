#!/usr/bin/env python3
"""extend.py KVSIM [KIND...] - proves that an extension is one file and one line.

Each kind_*.py of this folder is one kind of extension. The driver copies the tree, adds the files and
lines of all kinds to the copy, writes its reference pages again, builds the programs that the kinds name
and lets each kind check that its extension works in them. KVSIM is a built kvsim, which serves as worker.

A kind is a module with

    FILE     (path in the copy, name of its source in this folder), or None
    LINES    {file of the copy: line to add}: one, unless SEVERAL says why there are more
    TARGETS  what ninja is to build
    check(tree)  raises AssertionError where the extension does not work

A line goes before the first of its kind in its file: what begins with the same macro. A line that is no
macro names the text that it goes before: (line, text).

Exit status 0: all kinds work; 1: one does not.
"""

import importlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from lint import FILES, ROOT  # noqa: E402

# Targets that write the generated pages which are committed, and the programs that these run.
PAGES = ("reference", "cache-reference", "metrics-reference", "cache-metrics-reference")
PAGE_TARGETS = (
    "config/reference", "cache/command/kvtier",
    "src/router/admin/kvw-metrics-reference", "cache/core/kvt-metrics-reference",
)  # fmt: skip


class Tree:
    """The copy that the extensions are added to."""

    def __init__(self, root, kvsim):
        self.root = root
        self.build = root / "build"
        self.scratch = root / "scratch"  # files that checks write
        self.kvsim = kvsim

    def copy(self):
        for path in FILES:
            if path.parts[0] not in ("tests", "bench", "deploy"):
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / path, self.root / path)
        self.scratch.mkdir()

    def add_file(self, path, source):
        assert not (self.root / path).exists(), f"{path} exists"
        shutil.copy2(HERE / source, self.root / path)

    def add_line(self, path, line):
        """Puts a line before the first that begins with the same macro, or before a given text."""
        line, before = line if isinstance(line, tuple) else (line, line[: line.index("(") + 1])
        rows = (self.root / path).read_text().split("\n")
        at = next((i for i, row in enumerate(rows) if row.startswith(before)), None)
        assert at is not None, f"{path}: no line begins with {before}"
        rows.insert(at, line)
        (self.root / path).write_text("\n".join(rows))

    def run(self, argv):
        """Runs a command in the copy; returns what it printed."""
        done = subprocess.run(argv, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, f"{' '.join(map(str, argv))}:\n{done.stdout[-6000:]}"
        return done.stdout

    def fails(self, argv):
        """What a command printed that must not succeed."""
        done = subprocess.run(argv, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode != 0, f"{' '.join(map(str, argv))} succeeded:\n{done.stdout}"
        return done.stdout

    def text(self, path):
        return (self.root / path).read_text()

    def make(self, targets):
        if shutil.which("ccache"):
            os.environ["CC"] = "ccache " + os.environ.get("CC", "cc").removeprefix("ccache ")
            os.environ.setdefault("CCACHE_NOHASHDIR", "1")  # every copy has another path
        setup = ["meson", "setup", "build", "--buildtype=plain", "-Doptimization=0", "-Ddebug=false"]
        self.run(setup + ["-Dtests=false", "-Dbench=false", "-Dcuda=disabled"])
        self.run(["ninja", "-C", "build", *targets])
        self.run(["ninja", "-C", "build", *PAGES])


def check_size(kind):
    """One file and one line."""
    several = getattr(kind, "SEVERAL", None)
    assert len(kind.LINES) == 1 or several, f"{len(kind.LINES)} lines and no reason for it"
    for line in kind.LINES.values():
        assert "\n" not in (line[0] if isinstance(line, tuple) else line), "more than a line"


def say(kind, text):
    print(f"{kind.__name__.removeprefix('kind_'):12} {text}", flush=True)


def prove(tree, kinds):
    """Number of kinds that do not work."""
    tree.copy()
    for kind in kinds:
        check_size(kind)
        if kind.FILE:
            tree.add_file(*kind.FILE)
        for path, line in kind.LINES.items():
            tree.add_line(path, line)
    tree.make(sorted({*PAGE_TARGETS, *(target for kind in kinds for target in kind.TARGETS)}))
    failed = 0
    for kind in kinds:
        try:
            kind.check(tree)
            what = ([kind.FILE[0]] if kind.FILE else []) + [f"a line in {path}" for path in kind.LINES]
            say(kind, "works: " + ", ".join(what))
        except Exception as error:  # whatever went wrong, the other kinds are checked, too
            say(kind, f"FAILED: {type(error).__name__}: {error}")
            failed += 1
    return failed


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left behind
    names = sorted(path.stem for path in HERE.glob("kind_*.py"))
    names = [name for name in names if not sys.argv[2:] or name.removeprefix("kind_") in sys.argv[2:]]
    with tempfile.TemporaryDirectory(prefix="kvway-extend-") as folder:
        tree = Tree(pathlib.Path(folder), pathlib.Path(sys.argv[1]).resolve())
        os.environ["KVW_BUILD"] = str(tree.build)
        os.environ["KVTIER_LIBRARY"] = str(tree.build / "cache/core/libkvtier.so")
        sys.path[:0] = [str(HERE), str(ROOT / "tests/integration"), str(ROOT / "cache/python")]
        return 1 if prove(tree, [importlib.import_module(name) for name in names]) else 0


if __name__ == "__main__":
    sys.exit(main())
