#!/usr/bin/env python3
"""steps.py FOLDER [TARGET] - runs the Containerfile's steps in plain folders, and the image's program in the end.

For machines without a container engine: FROM, ARG, ENV, WORKDIR, COPY and RUN as the Containerfile has them, each stage in
a folder under FOLDER, its RUN steps in a chroot. The base image is a minimal system that mmdebstrap makes (its path may
be in MMDEBSTRAP), so packages can differ from Debian's slim image. TARGET: kvway (default) or kvtierd. The program is then
started as USER says, on a read-only root, and asked for /health. Needs root; takes some minutes.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEALTH = {"kvway": 9090, "kvtierd": 9201}
MOUNTS = (
    "mount -t proc proc {root}/proc && mount -t tmpfs tmpfs {root}/tmp && mkdir -p {root}/dev/shm"
    " && mount -t tmpfs -o size=512m tmpfs {root}/dev/shm"
)


def steps():
    """(word, rest) of each instruction."""
    text = (ROOT / "deploy/container/Containerfile").read_text()
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word, rest


def base_system(folder, image):
    suite = re.fullmatch(r"debian:(\w+)-slim", image)[1]
    where = folder / f"base-{suite}"
    if not where.exists():
        tool = os.environ.get("MMDEBSTRAP", "mmdebstrap")
        subprocess.run([tool, "--mode=root", "--variant=minbase", suite, where], check=True)
    return where


class Stage:
    def __init__(self, folder, name, parent):
        self.root, self.name = folder / f"stage-{name}", name
        self.env = dict(parent.env) if isinstance(parent, Stage) else {"PATH": os.environ["PATH"], "HOME": "/"}
        self.work, self.user, self.entry, self.arguments = "/", None, [], []
        if self.root.exists():
            shutil.rmtree(self.root)
        source = parent.root if isinstance(parent, Stage) else parent
        subprocess.run(["cp", "-a", "--reflink=auto", source, self.root], check=True)
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")

    def inside(self, command, more=""):
        """A shell command in this stage, in mounts and processes of its own."""
        root = shlex.quote(str(self.root))
        script = f"{MOUNTS.format(root=root)} && {more or 'true'} && exec {command}"
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-ec", script]

    def run(self, command):
        inner = shlex.quote(f"cd {shlex.quote(self.work)} && {command}")
        subprocess.run(self.inside(f"chroot {shlex.quote(str(self.root))} sh -c {inner}"), check=True, env=self.env)

    def copy(self, sources, target, origin):
        into = self.root / str(pathlib.PurePosixPath(self.work, target)).lstrip("/")
        for source in sources:
            path = origin / source.lstrip("/")
            one = target.endswith("/") or target in (".", "./")
            place = into / path.name if one and path.is_file() else into
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, place, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(path, place)


def build(folder, target):
    stages, variables, stage = {}, {}, None
    for word, rest in steps():
        for name, value in variables.items():
            rest = rest.replace("${" + name + "}", value)
        if word == "ARG":
            name, _, value = rest.partition("=")
            variables[name] = value
        elif word == "FROM":
            image, _, name = rest.partition(" AS ")
            if stage and stage.name == target:
                break
            wanted = name in ("build", "base", target)
            stage = Stage(folder, name, stages.get(image) or base_system(folder, image)) if wanted else None
            stages[name] = stage
        elif stage is None:
            continue
        elif word == "RUN":
            print(f"== {stage.name}: {rest}", flush=True)
            stage.run(rest)
        elif word == "COPY":
            origin = ROOT
            if rest.startswith("--from="):
                other, _, rest = rest.removeprefix("--from=").partition(" ")
                origin = stages[other].root
            *sources, place = rest.split()
            stage.copy(sources, place, origin)
        elif word == "WORKDIR":
            stage.work = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "ENV":
            name, _, value = rest.partition("=")
            stage.env[name] = value
        elif word == "USER":
            stage.user = rest
        elif word == "ENTRYPOINT":
            stage.entry = json.loads(rest)
        elif word == "CMD":
            stage.arguments = json.loads(rest)
        elif word != "EXPOSE":
            sys.exit(f"steps.py knows no {word}")
    return stages[target]


def start(stage):
    """The program as the image starts it, until it answers."""
    root = shlex.quote(str(stage.root))
    read_only = f"mount --bind {root} {root} && mount -o remount,ro,bind {root}"
    mounts = MOUNTS.format(root=root)
    command = f"chroot --userspec={stage.user} {root} {shlex.join([*stage.entry, *stage.arguments])}"
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    argv += ["sh", "-ec", f"{read_only} && {mounts} && exec {command}"]
    program = subprocess.Popen(argv, start_new_session=True)
    try:
        for _ in range(100):
            time.sleep(0.1)
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{HEALTH[stage.name]}/health", timeout=2) as answer:
                    print(f"== {stage.name}: /health answers {answer.status}")
                    return
            except OSError:
                if program.poll() is not None:
                    sys.exit(f"it ended with {program.returncode}")
        sys.exit("it does not answer")
    finally:
        os.killpg(program.pid, signal.SIGKILL)  # a change of user ends --kill-child
        program.wait()


def main(folder, target="kvway"):
    folder.mkdir(parents=True, exist_ok=True)
    stage = build(folder, target)
    size = int(subprocess.run(["du", "-sm", stage.root], capture_output=True, text=True, check=True).stdout.split()[0])
    print(f"== {target}: {size} MiB, user {stage.user}, starts {shlex.join([*stage.entry, *stage.arguments])}")
    start(stage)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:])
