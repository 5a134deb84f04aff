#!/usr/bin/env python3
"""wheel.py OUT - the Python package kvtier (connector of vLLM) as a wheel, from cache/python/pyproject.toml.

Pure Python: libkvtier.so.1 is found by the loader (package libkvtier1) or by KVTIER_LIBRARY. Needs nothing but Python:
neither setuptools nor a package index. `write` is for wheel_router.py, too.
"""

import base64
import hashlib
import os
import pathlib
import stat
import sys
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCE = ROOT / "cache/python"


def write(out, project, readme, tag, files, executable=()):
    """A wheel in the folder `out`; returns its path.

    project     [project] of a pyproject.toml
    files       {path in the wheel: bytes}; *.dist-info/licenses/ may be among them
    executable  those of `files` that are programs
    """
    name, version = project["name"], project["version"]
    info = f"{name}-{version}.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {project['description']}\n"
        f"License: {project['license']['text']}\nRequires-Python: {project['requires-python']}\n"
        f"Description-Content-Type: text/markdown\n\n{readme}"
    ).encode()
    pure = "true" if tag.endswith("-none-any") else "false"
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: wheel.py\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for path, data in files.items()
    )
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path)  # 1980: the same bytes give the same wheel
            mode = stat.S_IFREG | (0o755 if path in executable else 0o644)
            entry.external_attr, entry.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


def main(out):
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    name = project["name"]
    files = {f"{name}/{path.name}": path.read_bytes() for path in sorted((SOURCE / name).glob("*.py"))}
    wheel = write(out, project, (SOURCE / "README.md").read_text(), "py3-none-any", files)
    print(os.path.relpath(wheel))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
