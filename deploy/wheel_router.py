#!/usr/bin/env python3
"""wheel_router.py PROGRAM OUT - kvway as a wheel: the program, and every library that it loads but glibc.

PROGRAM is the installed, stripped kvway. pip copies it to bin/, its libraries to libexec/kvway/ next to bin/ (below lib/,
`pip install --target` would leave them out), where an RPATH finds them: no variable is needed, and LD_LIBRARY_PATH
replaces none. The libraries are the distribution's, byte for byte, with the licences of their packages. The tag names the
newest glibc of which program or libraries need a symbol.

Needs dpkg, binutils and patchelf (deploy/packages.sh package).
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from wheel import ROOT, write

DOC = pathlib.Path("/usr/share/doc")
TEXTS = pathlib.Path("/usr/share/common-licenses")
RPATH = "$ORIGIN/../libexec/kvway"
C = {**os.environ, "LC_ALL": "C"}

README = """\
# kvway

kvway stands in front of vLLM servers and sends each prompt to the one that already holds the beginning of it in its KV
cache.

    kvway --listen 127.0.0.1:8080 --worker http://127.0.0.1:8001 --worker http://127.0.0.1:8002

`kvway --help` shows what else there is; every key of a configuration file is explained in share/doc/kvway/REFERENCE.md.
The wheel brings the program and its libraries; of the system it needs glibc.
"""

NOTICE = """\
kvway is under the licence in ../LICENSE. The libraries in libexec/kvway are those of the following binary packages of
{system}, unchanged; `apt-get source PACKAGE=VERSION` gets their sources.
PACKAGE.copyright is the licence of a package, common/ has the texts to which these refer as /usr/share/common-licenses.

"""


def run(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, env=C)
    if done.returncode != 0:
        sys.exit(f"wheel_router.py: {' '.join(map(str, argv))}: {done.stderr.strip()}")
    return done.stdout


def owners(libraries):
    """{path: its package}. Before and after the merge of /lib and /usr/lib dpkg knows a file by another path."""
    known = {}
    for path in libraries:
        short = str(path.resolve()).removeprefix("/usr")
        known[path] = [str(path), str(path.resolve()), short, f"/usr{short}"]
    # It fails where it knows one of them by no package.
    search = ["dpkg-query", "--search", *sum(known.values(), [])]
    listed = subprocess.run(search, capture_output=True, text=True, env=C).stdout
    package = {path: name for name, path in re.findall(r"^([a-z0-9][\w.+-]*)(?::\w+)?: (/.*)$", listed, re.M)}
    found = {path: next((package[name] for name in names if name in package), None) for path, names in known.items()}
    for path, name in found.items():
        if name is None:
            sys.exit(f"wheel_router.py: {path} is of no Debian package, so that its licence is unknown")
    return found


def libraries_of(program):
    """{name by which it is loaded: (path, package)} of all that a program loads, glibc's left out"""
    listed = run("ldd", program)
    missing = re.findall(r"^\s*(\S+) => not found", listed, re.M)
    if missing:
        sys.exit(f"wheel_router.py: {program} needs {', '.join(missing)}, which is not here")
    paths = {name: pathlib.Path(path) for name, path in sorted(re.findall(r"^\s*(\S+) => (/\S+)", listed, re.M))}
    package = owners(paths.values())
    return {
        name: (path, package[path]) for name, path in paths.items() if not re.fullmatch(r"libc\d[.\d]*", package[path])
    }


def glibc_of(files):
    """(major, minor) of the oldest glibc that has what these files need."""
    needs = run("readelf", "--version-info", "--wide", *files)
    versions = {(int(major), int(minor)) for major, minor in re.findall(r"\bGLIBC_(\d+)\.(\d+)", needs)}
    if "GLIBC_ABI_DT_RELR" in needs:
        versions.add((2, 36))
    return max(versions)


def licences_of(packages):
    """{path below licenses/: bytes}"""
    release = pathlib.Path("/etc/os-release").read_text()
    notice = NOTICE.format(system=re.search(r'^PRETTY_NAME="?([^"\n]*)', release, re.M)[1])
    show = "--showformat=${binary:Package} ${Version}, of ${source:Package}\n"
    notice += run("dpkg-query", "--show", show, *sorted(packages))
    files = {}
    for package in packages:
        text = (DOC / package / "copyright").read_bytes()
        files[f"libraries/{package}.copyright"] = text
        for name in re.findall(rb"/usr/share/common-licenses/([\w.+-]*[\w+])", text):
            if (TEXTS / name.decode()).is_file():
                files[f"libraries/common/{name.decode()}"] = (TEXTS / name.decode()).read_bytes()
    return {"libraries/NOTICE": notice.encode(), **dict(sorted(files.items()))}


def main(program, out):
    version = run(program, "--version").split()[1]
    project = {
        "name": "kvway",
        "version": version,
        "description": "Router for vLLM servers that knows their KV caches",
        "license": {"text": "Apache-2.0"},
        "requires-python": ">=3.8",
    }
    libraries = libraries_of(program)
    major, minor = glibc_of([program, *(path for path, _ in libraries.values())])
    machine = sysconfig.get_platform().split("-", 1)[1]
    # Not RUNPATH: an RPATH holds for the libraries' libraries, too, so that these stay as they are.
    with tempfile.TemporaryDirectory() as work:
        copy = shutil.copy(program, pathlib.Path(work) / "kvway")
        run("patchelf", "--force-rpath", "--set-rpath", RPATH, copy)
        data = f"kvway-{version}.data"
        files = {f"{data}/scripts/kvway": copy.read_bytes()}
    for name, (path, _) in libraries.items():
        files[f"{data}/data/libexec/kvway/{name}"] = path.read_bytes()
    for path in (ROOT / "config/REFERENCE.md", *sorted((ROOT / "config/examples").glob("*.yaml"))):
        files[f"{data}/data/share/doc/kvway/{path.relative_to(ROOT / 'config')}"] = path.read_bytes()
    for name, text in licences_of({package for _, package in libraries.values()}).items():
        files[f"kvway-{version}.dist-info/licenses/{name}"] = text
    tag = f"py3-none-manylinux_{major}_{minor}_{machine}"
    print(os.path.relpath(write(out, project, README, tag, files, {f"{data}/scripts/kvway"})))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
