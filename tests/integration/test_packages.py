"""Debian packages of deploy/package.sh, unpacked and run from there; deploy/debian/try.sh installs them for real. Wheels."""

import base64
import csv
import hashlib
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import zipfile

import pytest

from rig.client import ask
from rig.kvtierd import PROGRAM as KVTIERD
from rig.router import BUILD, Process
from rig.router import PROGRAM as KVWAY
from rig.sim import Sim
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
        "bundle",
        "top",
        "usage",
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
    """{name: its control file}, the folder with all of them unpacked, and {name: wheel}."""
    if shutil.which("dpkg-shlibdeps") is None:
        pytest.skip("dpkg-dev is not installed")
    out = tmp_path_factory.mktemp("packages")
    run(ROOT / "deploy/package.sh", "--build", BUILD, out, env={**os.environ, "KVW_COMPRESSION": "none"})
    control, unpacked = {}, out / "unpacked"
    for package in out.glob("*.deb"):
        control[package.name.split("_")[0]] = run("dpkg-deb", "--field", package)
        run("dpkg-deb", "--extract", package, unpacked)
    return control, unpacked, {wheel.name.split("-")[0]: wheel for wheel in out.glob("*.whl")}


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
    _, unpacked, wheels = packages
    wheel = wheels["kvtier"]
    (library,) = unpacked.glob("usr/lib/*/libkvtier.so.1")
    code = 'from kvtier.library import Cache; Cache(["l1: {capacity: 64MiB}"]).close()'
    run("/usr/bin/python3", "-c", code, env={"PYTHONPATH": str(wheel), "LD_LIBRARY_PATH": str(library.parent)})
    listed = run("/usr/bin/python3", "-m", "zipfile", "--list", wheel)
    for module in (ROOT / "cache/python/kvtier").glob("*.py"):
        assert f"kvtier/{module.name}" in listed


# --- the router's wheel -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def router_wheel(packages):
    if shutil.which("patchelf") is None:
        pytest.skip("patchelf is not installed")
    return packages[2]["kvway"]


@pytest.fixture(scope="module")
def environment(router_wheel, tmp_path_factory):
    """A virtual environment in which pip has installed the wheel."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, text=True, timeout=400)
    if made.returncode != 0:
        pytest.skip(f"no virtual environment with pip (python3-venv): {(made.stdout + made.stderr).strip()}")
    run(folder / "bin/pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", router_wheel)
    return folder


def test_the_same_router_gives_the_same_wheel(packages, router_wheel, tmp_path):
    _, unpacked, _ = packages
    run(sys.executable, ROOT / "deploy/wheel_router.py", unpacked / "usr/bin/kvway", tmp_path)
    assert (tmp_path / router_wheel.name).read_bytes() == router_wheel.read_bytes()


def test_the_routers_wheel_lists_what_is_in_it_with_the_licences_of_its_libraries(router_wheel):
    assert re.fullmatch(r"kvway-0\.1\.0-py3-none-manylinux_2_\d+_\w+\.whl", router_wheel.name)
    with zipfile.ZipFile(router_wheel) as archive:
        files = {entry.filename: archive.read(entry) for entry in archive.infolist()}
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    info = "kvway-0.1.0.dist-info"
    programs = [name for name, mode in modes.items() if mode & 0o111]
    assert programs == ["kvway-0.1.0.data/scripts/kvway"]
    assert all(stat.S_ISREG(mode) for mode in modes.values())
    listed = {row[0]: row[1:] for row in csv.reader(files[f"{info}/RECORD"].decode().splitlines())}
    assert listed.pop(f"{info}/RECORD") == ["", ""]
    assert set(listed) == set(files) - {f"{info}/RECORD"}
    for name, (digest, size) in listed.items():
        sha256 = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        assert (digest, int(size)) == (f"sha256={sha256}", len(files[name])), name
    libraries = [name.rsplit("/", 1)[1] for name in files if "/data/libexec/kvway/" in name]
    assert any(name.startswith("libevent") for name in libraries)
    assert not [name for name in libraries if re.match(r"(libc|libm|libpthread|ld-linux.*)\.so", name)]
    for package in re.findall(r"^([a-z0-9.+-]+)(?::\w+)? \S+, of ", files[f"{info}/licenses/libraries/NOTICE"].decode(), re.M):
        assert files[f"{info}/licenses/libraries/{package}.copyright"], package


def test_the_installed_router_needs_nothing_of_the_system_but_glibc(environment):
    libraries = environment.resolve() / "libexec/kvway"
    loaded = re.findall(r"^\s*(\S+) => (/\S+)", run("ldd", environment / "bin/kvway"), re.M)
    own = {name for name, path in loaded if pathlib.Path(path).resolve().parent == libraries}
    assert own == {path.name for path in libraries.iterdir()}
    for name, _ in loaded:
        assert name in own or re.match(r"(libc|libm|libpthread|libdl|librt|libresolv)\.so", name), name


def test_the_installed_router_serves_a_worker_of_its_command_line(environment, tmp_path):
    kvway = environment / "bin/kvway"
    assert run(kvway, "--version") == "kvway 0.1.0\n"
    assert "--worker URL" in run(kvway, "--help")
    (example,) = environment.glob("share/doc/kvway/examples/minimal.yaml")
    assert "ok, 2 workers" in run(kvway, "check", "-c", example)
    sim, port, admin = Sim(tmp_path), unused_port(), unused_port()
    flags = ("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}", "--worker", sim.workers[0].url)
    router = Process([kvway, *flags], tmp_path / "kvway.log")

    def knows_the_model():
        assert router.alive(), router.log()
        try:
            return [model["id"] for model in ask(port, "GET", "/v1/models").json()["data"]] == ["tiny"]
        except OSError:
            return False

    try:
        until(knows_the_model, 20, "the worker's model")
        body = b'{"model": "tiny", "prompt": "one two three", "max_tokens": 4}'
        answer = ask(port, "POST", "/v1/completions", [("content-type", "application/json")], body)
        assert (answer.status, answer.json()["model"]) == (200, "tiny"), answer.body
        assert answer.json()["usage"]["completion_tokens"] == 4
        assert sim.workers[0].stats()["finished"] == 1
    finally:
        router.kill()
        sim.kill()
