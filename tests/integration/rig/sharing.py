"""Engine processes of a node (kvtier_share.py), one question and one answer at a time."""

import json
import os
import pathlib
import subprocess
import sys

from rig import kvtier_share
from rig.router import BUILD, with_parent

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Engine:
    """Started at once. ask() waits for the answer; begin() leaves it for answer()."""

    def __init__(self, directory, name, config):
        self.config = {"fingerprint": "cd" * 32, "control": {"fetch_when_slower": True}, **config}
        self.errors = directory / f"{name}.err"
        argv = [sys.executable, kvtier_share.__file__, ROOT / "cache/python", json.dumps(self.config)]
        env = {**os.environ, "KVTIER_LIBRARY": str(BUILD / "cache/core/libkvtier.so.1")}
        with open(self.errors, "ab") as err:
            self.process = subprocess.Popen(
                with_parent(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, env=env, text=True,
            )  # fmt: skip

    @property
    def pid(self):
        return self.process.pid

    def answer(self):
        line = self.process.stdout.readline()
        assert line, self.errors.read_text()[-4000:]
        return json.loads(line)

    def ready(self):
        assert self.answer() == "ready"
        return self

    def begin(self, *words):
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def ask(self, *words):
        self.begin(*words)
        return self.answer()

    def get(self, *prompts):
        """How many chunks there were; none is wrong."""
        found = self.ask("get", *prompts)
        assert found["wrong"] == 0, found
        return found["got"]

    def state(self, tier):
        """(state, reason); 0: there is no such tier."""
        return self.ask("state").get(tier, [0, ""])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        """Ends as an engine does that is asked to."""
        if self.process.poll() is None:
            self.process.stdin.close()
            assert self.process.wait(30) == 0, self.errors.read_text()[-4000:]
        text = self.errors.read_text()
        assert "Sanitizer" not in text and "runtime error" not in text, text
