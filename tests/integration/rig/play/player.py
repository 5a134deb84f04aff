"""Plays a case on a stage, step by step in the order of the file, and says where and how it failed.

After the last step of each case hold, without a word of the file: every request that a worker received was expected by a
step, or by `serves`; kvway lives and has nothing in flight.
"""

import subprocess
import time

from rig.play import clients, fleet, kvway  # noqa: F401  their verbs register themselves
from rig.play.expect import Failure
from rig.play.stage import WAIT
from rig.play.values import Names
from rig.router import PROGRAM


class Player:
    """What the steps of one case share."""

    def __init__(self, stage, case, variables=None):
        self.stage, self.case = stage, case
        self.names = Names(variables or {})
        self.names.tables = set(variables or {})
        self.clients = {}  # name: clients.Connection
        self.bound = {}  # name of `as`, or a worker's: the request that it received last
        self.seen = set()  # workers that have received a request since `any` did
        router = stage.router
        self.names.update({"n": "0", "dir": str(stage.directory), "kvway.port": router.port, "kvway.admin": router.admin_port})
        for name, actor in stage.workers.items():
            self.name_worker(name, actor)

    def name_worker(self, name, actor):
        port = actor.rig.port
        self.names.update({f"{name}.url": actor.rig.url, f"{name}.port": port, f"{name}.host": f"127.0.0.1:{port}"})

    def play(self):
        """Raises Failure with its step."""
        self.stage.begin(self.case)
        try:
            self.steps(self.case.steps)
            self.after()
        finally:
            for client in self.clients.values():
                client.close()

    def steps(self, steps):
        for step in steps:
            if step.verb is None:
                self.block(step)
                continue
            self.step(step)

    def step(self, step):
        try:
            step.verb.run(self, step)
        except Failure as failure:
            failure.step = failure.step or step
            raise
        except OSError as error:
            failure = Failure(step.text, f"{type(error).__name__}: {error}")
            failure.step = step
            raise failure from None

    def block(self, step):
        if step.actor == "repeat":
            for turn in range(step.times):
                self.names["n"] = str(turn)
                self.steps(step.below)
            return
        deadline = time.monotonic() + WAIT.s
        while True:
            try:
                self.steps(step.below)
                return
            except Failure as failure:
                for name in [name for name in self.clients if name != "client"] + ["client"]:
                    if name in self.clients:
                        self.clients.pop(name).close()
                if time.monotonic() > deadline:
                    failure.expected += f"  (tried again and again for {WAIT.s:g} s, from line {step.line})"
                    raise
            time.sleep(0.02)

    def after(self):
        """What every case expects at its end."""
        stage = self.stage
        for actor in stage.workers.values():
            if actor.rig.failures:
                raise Failure(f"{actor.name} to serve without a fault", repr(actor.rig.failures[0]))
        for client in self.clients.values():
            client.close()
        if not stage.router.alive():
            raise Failure("kvway alive at the end", f"it ended with status {stage.router.popen.poll()}")
        if stage.waiting:
            raise Failure("no request that no step expects", stage.others()[2:])
        kvway.idle(self, None)


def trace_of(router):
    argv = [PROGRAM, "trace", "--last", "3", "--admin", f"127.0.0.1:{router.admin_port}"]
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=10).stdout
    except subprocess.TimeoutExpired:
        return "no answer within 10 s\n"


def indented(text, first="", by="    "):
    return "".join(f"{first if i == 0 else by}{line}\n" for i, line in enumerate(text.splitlines() or [""]))


def report(case, failure, stage):
    """What a reader sees of a failure."""
    step = failure.step
    where = f"{case.path}:{failure.line or step.line}: {step.text}" if step else f"{case.path}: at its end"
    text = where + "\n" + indented(failure.expected, "  expected: ", " " * 12) + indented(failure.came, "  came:     ", " " * 12)
    if stage and stage.waiting and stage.others()[2:] not in failure.came:
        text += f"  meanwhile {stage.others()[2:]}, for which there is no step `receives`\n"
    if stage and stage.router:
        text += f"  the last lines of {stage.router.log_path} (configuration: {stage.router.config_path}):\n"
        text += "".join(f"    {line}\n" for line in stage.last_lines())
        if stage.router.alive():
            text += "  kvway trace, the latest requests:\n" + indented(trace_of(stage.router), "    ")
    return text
