"""Stock LMCache as a client: `lmcache_drive.py` as a process that takes commands, one a line.

The environment is any Python that has lmcache 0.5.6, named by KVW_LMCACHE_PYTHON; README.md next to
this file says how to make one.
"""

import json
import os
import pathlib
import queue
import signal
import subprocess
import threading

from rig.router import with_parent
from rig.wait import PATIENCE

HERE = pathlib.Path(__file__).parent
PYTHON = os.environ.get("KVW_LMCACHE_PYTHON", "")
START_SECONDS = 120
CHUNK = 16  # tokens
CHUNK_BYTES = 2048  # of the drive's model: 128 bytes a token


def environment(remote_url, chunk=CHUNK, cpu_gb=0.01, **extra):
    """What LMCache reads. extra: its extra_config."""
    return {
        "LMCACHE_CHUNK_SIZE": str(chunk),
        "LMCACHE_MAX_LOCAL_CPU_SIZE": str(cpu_gb),
        "LMCACHE_SAVE_UNFULL_CHUNK": "True",
        "LMCACHE_REMOTE_URL": remote_url,
        "LMCACHE_EXTRA_CONFIG": json.dumps(extra),
    }


class LMCache:
    """One engine. ask("store", 1000, 40) -> what it answered."""

    program = "lmcache_drive.py"

    def __init__(self, directory, settings, *options, name="lmcache"):
        self.log_path = directory / f"{name}.log"
        self.output = open(self.log_path, "ab")
        self.popen = subprocess.Popen(
            with_parent([PYTHON, HERE / self.program, *options]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.output,
            text=True,
            env={**os.environ, **settings},
        )
        self.said = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.begun = self._next("start", START_SECONDS)

    def _read(self):
        for line in self.popen.stdout:
            self.said.put(json.loads(line))
        self.said.put(None)

    def _next(self, what, seconds):
        try:
            line = self.said.get(timeout=seconds * PATIENCE)
        except queue.Empty:
            raise AssertionError(f"LMCache did not answer {what}:\n{self.log()[-4000:]}") from None
        assert line is not None, f"LMCache ended at {what}:\n{self.log()[-4000:]}"
        assert line["ok"], line
        return line

    def log(self):
        return self.log_path.read_text(errors="replace")

    def ask(self, *words, seconds=60):
        line = " ".join(map(str, words))
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()
        answer = self._next(line, seconds)
        # The rule of all these tests: what comes back is right, or nothing does.
        assert answer.get("equal", True) in (True, None), answer
        return answer

    def store(self, seed, tokens):
        answer = self.ask("store", seed, tokens)
        assert self.ask("wait")["idle"]
        return answer

    def kill(self):
        self.popen.kill()
        self.popen.wait()
        self.popen.stdin.close()
        self.output.close()

    def stall(self):
        self.popen.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.popen.send_signal(signal.SIGCONT)

    def finish(self, seconds=60):
        """As an engine ends; LMCache's own shutdown may block, the drive leaves after 3 s."""
        self.popen.stdin.write("quit\n")
        self.popen.stdin.flush()
        status = self.popen.wait(seconds * PATIENCE)
        self.popen.stdin.close()
        self.output.close()
        assert status == 0, self.log()[-4000:]


class MultiProcessClient(LMCache):
    """The client of LMCache's multi-process mode. ask("get", KEY, BYTES)."""

    program = "lmcache_mp.py"
