"""Debian packages of deploy/package.sh, unpacked and run from there; deploy/debian/try.sh installs them for real."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from rig.client import ask
from rig.kvtierd import PROGRAM as KVTIERD
from rig.router import BUILD, Process
from rig.router import PROGRAM as KVWAY
from rig.wait import until, unused_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = {"kvway": KVWAY, "kvtier": BUILD / "cache/command/kvtier", "kvtierd": KVTIERD}
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")


def run(*argv, **options):
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- manual pages and completions -------------------------------------------------------------------


@pytest.fixture(scope="module")
def manual(tmp_path_factory):
    out = tmp_path_factory.mktemp("manual")
    run(sys.executable, ROOT / "deploy/manual.py", out, *PROGRAMS.values())
    return out


def helps():
    """(program, verb or "", its help)"""
    yield "kvtierd", "", run(PROGRAMS["kvtierd"], "--help")
    yield "kvway", "", run(PROGRAMS["kvway"], "--help")
    for verb in ("explain", "key", "render", "workers"):
        yield "kvway", verb, run(PROGRAMS["kvway"], verb, "--help")
    text = run(PROGRAMS["kvtier"], "--help")
    for verb in re.findall(r"^  ([a-z]+) {2,}", text, re.M):
        yield "kvtier", verb, run(PROGRAMS["kvtier"], verb, "--help")


def completed(script, *words):
    """What bash offers for the last of the words."""
    program = words[0]
    quoted = " ".join(f"'{word}'" for word in words)
    return run(
        "bash", "-uc",
        f". {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _{program}; "
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ).split()  # fmt: skip


def options_of(text):
    """Options at the beginning of a line of a help, and in its usage."""
    own = re.findall(r"^ {2,6}(?:-\w, )?(--[a-z][a-z0-9-]*)", text, re.M)
    usage = re.search(r"^usage:(.*?)\n\n", text, re.S | re.M | re.I)[1]
    return set(own) | (set(FLAG.findall(usage)) if "kvtierd" in usage else set())


def test_every_option_of_every_help_is_in_its_page_and_completions(manual):
    count = 0
    for program, verb, text in helps():
        page = f"{program}-{verb}" if program == "kvway" and verb else program
        roff = (manual / "man" / f"{page}.1").read_text().replace("\\-", "-")
        zsh = (manual / "zsh" / f"_{program}").read_text()
        fish = (manual / "fish" / f"{program}.fish").read_text()
        offered = set(completed(manual / "bash" / program, program, *([verb] if verb else []), "--"))
        options = options_of(text)
        assert options or verb == "reference", (program, verb)
        assert options <= offered, (program, verb)
        for option in options:
            assert option in roff, (page, option)
            assert f"*{option}[" in zsh, (program, option)
            assert f" -l {option[2:]}" in fish, (program, option)
            count += 1
    assert count > 50


def test_bash_completes_verbs_values_and_files(manual, tmp_path):
    kvway, kvtier = manual / "bash/kvway", manual / "bash/kvtier"
    assert set(completed(kvway, "kvway", "")) == {
        "check",
        "compare",
        "explain",
        "groups",
        "key",
        "render",
        "state",
        "trace",
        "workers",
    }
    assert completed(kvway, "kvway", "--strategy", "round") == ["roundrobin"]
    assert completed(kvway, "kvway", "--log-level", "w") == ["warn"]
    assert completed(kvway, "kvway", "workers", "dr") == ["drain"]
    assert completed(kvway, "kvway", "render", "--only", "ro") == ["router"]
    assert completed(kvway, "kvway", "render", "--cache", "k") == ["kvtier"]
    assert completed(kvway, "kvway", "render", "--str") == ["--strict", "--strategy"]  # of a manifest, and of a router
    assert completed(kvtier, "kvtier", "ver") == ["verify"]
    (tmp_path / "a.yaml").write_text("")
    (tmp_path / "folder").mkdir()
    # Bash sorts what it shows; the completion gives it as the folder has it.
    assert sorted(completed(kvway, "kvway", "-c", f"{tmp_path}/")) == [f"{tmp_path}/a.yaml", f"{tmp_path}/folder"]
    assert completed(kvtier, "kvtier", "stat", f"{tmp_path}/") == [f"{tmp_path}/folder"]


def test_pages_are_without_mistakes(manual):
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    for page in sorted((manual / "man").iterdir()):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", page], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), page.name
        assert re.search(r"^\.SH NAME\n.* \\- \S", page.read_text(), re.M)


# --- packages ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """{name: its control file}, the folder with all of them unpacked, and the wheel."""
    if shutil.which("dpkg-shlibdeps") is None:
        pytest.skip("dpkg-dev is not installed")
    out = tmp_path_factory.mktemp("packages")
    run(ROOT / "deploy/package.sh", "--build", BUILD, out, env={**os.environ, "KVW_COMPRESSION": "none"})
    control, unpacked = {}, out / "unpacked"
    for package in out.glob("*.deb"):
        control[package.name.split("_")[0]] = run("dpkg-deb", "--field", package)
        run("dpkg-deb", "--extract", package, unpacked)
    (wheel,) = out.glob("*.whl")
    return control, unpacked, wheel


def test_packages_need_the_libraries_that_they_load(packages):
    control, unpacked, _ = packages
    assert sorted(control) == ["kvtier", "kvway", "libkvtier-dev", "libkvtier1"]
    for package in ("kvtier", "kvway", "libkvtier1"):
        depends = re.search(r"^Depends: (.*)$", control[package], re.M)[1]
        assert "libc6 (>=" in depends and "libssl3" in depends, package
    assert "libkvtier1 (= 0.1.0-1)" in control["libkvtier-dev"]


def test_programs_run_from_the_packages_with_the_files_that_come_with_them(packages, tmp_path):
    _, unpacked, _ = packages
    bin, etc = unpacked / "usr/bin", unpacked / "etc"
    assert "ok, 2 workers" in run(bin / "kvway", "check", "-c", etc / "kvway/kvway.yaml")
    run(bin / "kvtierd", "check", etc / "kvtierd/kvtierd.yaml")
    run(bin / "kvtier", "size", "--help")
    port, admin = unused_port(), unused_port()
    flags = ("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}", "--worker", "http://127.0.0.1:9")
    router = Process([bin / "kvway", *flags], tmp_path / "kvway.log")

    def answers():
        try:
            return ask(port, "GET", "/health").status == 200
        except OSError:
            return False

    try:
        until(answers, 20, "health")
    finally:
        router.kill()


def test_units_of_the_packages_start_what_is_in_them(packages):
    _, unpacked, _ = packages
    for unit in ("kvway", "kvtierd"):
        text = (unpacked / f"usr/lib/systemd/system/{unit}.service").read_text()
        for line in re.findall(r"^Exec(?:Start|StartPre)=-?(.*)$", text, re.M):
            program, *arguments = line.split()
            assert (unpacked / program[1:]).exists(), line
            assert (unpacked / arguments[-1][1:]).exists(), line
        user = re.search(r"^User=(.*)$", text, re.M)[1]
        assert (unpacked / f"usr/lib/sysusers.d/{user}.conf").read_text().startswith(f"u {user} ")


def test_a_program_finds_the_library_by_pkg_config(packages, tmp_path):
    _, unpacked, _ = packages
    (pc,) = unpacked.glob("usr/lib/*/pkgconfig/kvtier.pc")
    env = {**os.environ, "PKG_CONFIG_PATH": str(pc.parent), "PKG_CONFIG_SYSROOT_DIR": str(unpacked)}
    flags = run("pkg-config", "--cflags", "--libs", "kvtier", env=env).split()
    program = tmp_path / "try"
    run("cc", "-Wall", "-Werror", ROOT / "deploy/debian/try.c", "-o", program, *flags)
    assert run(program, env={**os.environ, "LD_LIBRARY_PATH": str(pc.parents[1])}) == "libkvtier 0.1.0: 0 chunks found\n"


def test_the_wheel_has_the_whole_package_and_finds_the_library(packages):
    _, unpacked, wheel = packages
    (library,) = unpacked.glob("usr/lib/*/libkvtier.so.1")
    code = 'from kvtier.library import Cache; Cache(["l1: {capacity: 64MiB}"]).close()'
    run("/usr/bin/python3", "-c", code, env={"PYTHONPATH": str(wheel), "LD_LIBRARY_PATH": str(library.parent)})
    listed = run("/usr/bin/python3", "-m", "zipfile", "--list", wheel)
    for module in (ROOT / "cache/python/kvtier").glob("*.py"):
        assert f"kvtier/{module.name}" in listed
