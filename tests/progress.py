#!/usr/bin/env python3
"""Runs ninja or `meson test`, and says each minute how far it is.

    progress.py LABEL LOG COMMAND...

The whole output goes to LOG. Of meson's output, all but the lines of tests that passed is printed at once; of ninja's,
warnings and errors when the build has failed. The exit status is the command's.

    asan, 3 min: 212 of 398, 0 failed; slowest: cache-model 61 s, openai-differential 40 s; running: test_tls 35 s
"""

import ctypes
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

EVERY_S = 60
SHOWN = 3  # tests that are slowest, and those that have run for longest
TAIL = 60  # lines of a build that failed
# " 12/398 kvway:unit / http-body     OK        0.31s"
TEST = re.compile(r"^\s*(\d+)/(\d+) (?:.*? / )?(\S+)\s+([A-Z]+)\s+([0-9.]+)s")
# "[12/961] Compiling C object ..."
STEP = re.compile(r"^\[(\d+)/(\d+)\] ")
GOOD = ("OK", "SKIP", "EXPECTEDFAIL")


class Progress:
    """What has ended so far. Written by the thread that reads; the thread that prints takes what it finds."""

    def __init__(self, label):
        self.label, self.began = label, time.monotonic()
        self.done = self.all = self.failed = 0
        self.slowest = []  # (seconds, name)
        self.rest = []  # lines of a build that are no steps

    def take(self, line):
        """One line of output. Returns whether it is shown at once."""
        test, step = TEST.match(line), STEP.match(line)
        if step:
            self.done, self.all = int(step[1]), int(step[2])
        elif test:
            self.done, self.all = self.done + 1, int(test[2])
            self.failed += test[4] not in GOOD
            self.slowest = sorted([*self.slowest, (float(test[5]), test[3])], reverse=True)[:SHOWN]
            return test[4] not in GOOD
        else:
            self.rest = [*self.rest, line][-TAIL:]
        return not step

    def line(self, running):
        text = f"   {self.label}, {(time.monotonic() - self.began) / 60:.0f} min: {self.done} of {self.all}"
        if self.slowest:
            text += f", {self.failed} failed; slowest: " + named(self.slowest)
            if running:
                text += "; running: " + named(running)
        return text


def named(tests):
    return ", ".join(f"{name} {seconds:.0f} s" for seconds, name in tests)


def running_below(parent):
    """(seconds, name) of the child processes that have run for longest."""
    up_s, hertz, found = float(pathlib.Path("/proc/uptime").read_text().split()[0]), os.sysconf("SC_CLK_TCK"), []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rsplit(")", 1)[1].split()
            words = (path / "cmdline").read_text().split("\0")[:-1]
        except OSError:
            continue  # it has ended
        if int(fields[1]) == parent and words:
            # `pytest.sh test_x.py ...` or `pytest.sh .../requests`; a unit test is its program.
            name = next((word for word in words if word.endswith((".py", "/requests"))), words[0])
            found.append((up_s - int(fields[19]) / hertz, pathlib.Path(name).stem))
    return sorted(found, reverse=True)[:SHOWN]


def main():
    label, log, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG: ends with the script that started it
    progress, over = Progress(label), threading.Event()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: child.terminate())
    is_build = pathlib.Path(command[0]).name == "ninja"

    def tell():
        while not over.wait(EVERY_S):
            print(progress.line(running_below(child.pid)), file=sys.stderr, flush=True)

    threading.Thread(target=tell, daemon=True).start()
    with open(log, "w") as out:
        for line in child.stdout:
            out.write(line)
            if progress.take(line) and not is_build:
                print(line, end="", file=sys.stderr, flush=True)
    over.set()
    status = child.wait()
    if is_build and status != 0:
        print("".join(progress.rest), end="", file=sys.stderr)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
