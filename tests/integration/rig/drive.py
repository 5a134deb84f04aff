"""kvt_drive: a process over libkvtier whose chunks show whether they are right."""

import json
import subprocess
import threading

from rig.router import BUILD, Process, nest, with_parent
from rig.wait import PATIENCE, until

PROGRAM = BUILD / "tests/integration/kvt_drive"

# A cache that leaves nothing to the machine it runs on.
DEFAULTS = {
    "l1.capacity": "32MiB",
    "control.breaker_open": "200ms",
    "control.breaker_open_max": "1s",
    "l2.deadline": "300ms",
    "l2.connect_timeout": "300ms",
    "l2.missing_time": "0s",
    "l2.seen_time": "1s",
    "l2.part_size": "256KiB",
}


class Drive(Process):
    """One kvt_drive; lines() are what it said since the last call."""

    def __init__(self, directory, config, name="drive"):
        path = directory / f"{name}.yaml"
        path.write_text(json.dumps(nest({**DEFAULTS, **config}), indent=2) + "\n")
        self.said = []
        self.waiting = 0
        self.changed = threading.Condition()
        self.log_path = directory / f"{name}.log"
        self.output = open(self.log_path, "ab")
        self.argv = [str(PROGRAM), str(path)]
        self.popen = subprocess.Popen(
            with_parent(self.argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.output,
            text=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.popen.stdout:
            if not line.endswith("\n"):
                break  # killed in the middle of a line
            with self.changed:
                self.said.append(json.loads(line))
                self.changed.notify_all()
        with self.changed:
            self.said.append(None)
            self.changed.notify_all()

    def wait_open(self, seconds=30):
        self.answer("open", seconds)
        return self

    def answer(self, command, seconds=30):
        """The next answer to this command; what came before it stays in `passed`."""
        with self.changed:
            passed = []
            while True:
                while self.said:
                    line = self.said.pop(0)
                    assert line is not None, f"kvt_drive ended:\n{self.log()[-4000:]}"
                    if line.get("cmd") == command:
                        assert line["ok"], line
                        line["passed"] = passed
                        return line
                    passed.append(line)
                assert self.changed.wait(seconds * PATIENCE), f"no answer to {command}"

    def send(self, *words):
        self.popen.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.popen.stdin.flush()

    def ask(self, *words, seconds=30):
        self.send(*words)
        return self.answer(words[0], seconds)

    def lines(self):
        """All lines that came since the last answer; of a process that may have ended."""
        with self.changed:
            taken, self.said = [line for line in self.said if line is not None], []
        return taken

    def kill(self):
        if self.alive():
            self.popen.kill()
        self.popen.wait()
        self.reader.join(10)
        for pipe in (self.popen.stdin, self.popen.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        self.output.close()

    def finish(self, seconds=30):
        """Ends it as an engine would end; a sanitizer's finding or a wrong status fails."""
        self.popen.stdin.close()
        status = self.popen.wait(seconds * PATIENCE)
        log = self.log()
        self.kill()
        assert status == 0, f"kvt_drive ended with {status}:\n{log[-6000:]}"
        assert "Sanitizer" not in log and "runtime error" not in log, log[-6000:]


def sums_of(lines):
    """Wrong chunks that were reported, and the last sums."""
    wrong = [line for line in lines if "wrong_at" in line]
    sums = [line for line in lines if line.get("progress")]
    return wrong, sums[-1] if sums else None


def until_stored(drive, tier, chunks, seconds=20):
    """Until a tier has taken that many chunks."""
    until(lambda: drive.ask("stats")[tier]["stores"] >= chunks, seconds, f"{chunks} in {tier}")
