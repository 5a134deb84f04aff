"""A kvway and its workers, on which cases are played, and which of them may be shared.

Cases with the same configuration share one kvway as long as it has forgotten nothing and learned nothing that a later
case could see: it has one worker (with several, turns and loads of before decide which is next), that worker is up, and
none of the counters of REMEMBERED has moved. All else is compared as an increase since the case began.

Workers are rig's. What a worker receives is queued for the step that expects it, until a step says that it serves by
itself.
"""

import socket
import threading
import time
import types

from rig.play.expect import Failure
from rig.router import Router
from rig.wait import PATIENCE
from rig.wire import Closed
from rig.worker import PROBES, Worker
from rig.worker import answer as usual_answer

WAIT = types.SimpleNamespace(s=10.0 * PATIENCE)  # for anything that a step expects
LAST_LINES = 25  # of kvway's log, under a failure

# kvway judges workers, learns their limits or withholds repeats after these.
REMEMBERED = (
    "kvway_worker_bad_answers_total", "kvway_worker_probes_failed_total", "kvway_full_answers_total",
    "kvway_retries_total", "kvway_failovers_total", "kvway_worker_cache_losses_total", "kvway_internal_errors_total",
    "kvway_worker_stall", "kvway_timeouts_total",
)  # fmt: skip


def wait_for(condition, expected, came):
    """The first true value of condition(), looked at until one bounded wait is over."""
    deadline = time.monotonic() + WAIT.s
    pause = 0.001
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(expected, f"{came()}, for {WAIT.s:g} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.03)


class Heard:
    """A worker's request, and what its thread waits for."""

    def __init__(self, ex, name):
        self.ex = ex
        self.worker = name  # w0
        self.go_on = threading.Event()  # its thread reads the next request on this connection

    def ended(self):
        """Has the connection been closed, by either side?"""
        return self.ex.sock.fileno() == -1


class Actor:
    """One worker of a stage, scripted by steps."""

    def __init__(self, stage, name, settings):
        self.stage, self.name = stage, name
        self.models = settings.get("models", ["tiny"])
        self.prefix = "".join(settings.get("prefix", []))
        self.rig = Worker(script=self.take, name=name, models=self.models)
        self.rig.base = "".join(settings.get("base", [])) or None
        self.reset(False)

    def reset(self, reads_late):
        """As at the beginning of a case."""
        self.rig.read_body = not reads_late
        self.rig.models, self.rig.healthy, self.rig.metrics = list(self.models), True, ""
        self.rig.requests.clear()
        self.serve = None
        self.count = 0

    def take(self, ex):
        """In the thread of a connection, for each request; kvway's probes of a worker below a path come here, too."""
        if self.prefix and ex.method == "GET" and ex.path.removeprefix(self.prefix) in PROBES:
            self.rig.requests.remove(ex)
            models = {"object": "list", "data": [{"id": model, "object": "model"} for model in self.models]}
            ex.respond(200, body=models if ex.path.endswith("/models") else b"")
            return
        self.count += 1
        if self.serve:
            self.serve(ex)
            return
        heard = Heard(ex, self.name)
        self.stage.queue(heard)
        heard.go_on.wait()


class Stage:
    """Stage(directory, case): starts them; play in between begin() and end(); stop() in the end."""

    def __init__(self, directory, case):
        self.directory = directory
        self.changed = threading.Condition()
        self.waiting = []  # Heard that no step has received
        self.held = []  # Heard that was received
        self.alone = case.workers != 1
        self.workers = {}
        self.files(case)
        self.router = None
        try:
            self.start(case)
        except BaseException:
            self.kill()
            raise

    def files(self, case):
        for name, content in case.files.items():
            (self.directory / name).write_text(content)

    def start(self, case):
        entries = []
        fixed = False
        for i in range(case.workers):
            settings = case.settings.get(f"w{i}", {})
            actor = Actor(self, f"w{i}", settings)
            self.workers[actor.name] = actor
            entry = {"url": actor.rig.url + actor.prefix}
            if actor.prefix:
                entry["models"] = actor.models
                fixed = True
            if "key" in settings:
                entry["api_key"] = settings["key"][0]
            entries.append(entry)
        config = {key: self.in_dir(value) for key, value in case.config.items()}
        self.access = self.directory / "access.log"
        config = {"workers": entries, "log.access": str(self.access), **config}
        self.router = Router(self.directory, [], config)
        self.router.wait_up(() if fixed else [actor.rig for actor in self.workers.values()])
        counted = lambda: self.router.metric("kvway_requests_total")
        wait_for(lambda: counted() >= self.router.waited, "the requests of the start counted", lambda: f"{counted():g}")
        self.began_with = self.remembered()

    def in_dir(self, value):
        if isinstance(value, str):
            for name, actor in self.workers.items():
                value = value.replace(f"${{{name}.url}}", actor.rig.url)
            return value.replace("${dir}", str(self.directory))
        return value

    # --- a case ---

    def begin(self, case):
        self.waiting, self.held = [], []
        for actor in self.workers.values():
            actor.reset(case.reads_late)
        self.log_from = self.router.log_path.stat().st_size
        self.metrics = self.router.metrics()

    def end(self):
        """Closes what is left of a case. Returns whether another one may be played here."""
        for heard in [*self.waiting, *self.held]:
            heard.ex.keep = heard.ex.keep and not heard.ended()
            heard.go_on.set()
        if self.alone or not self.router.alive():
            return False
        actor = self.workers["w0"]
        good = actor.rig.listener is not None and actor.rig.healthy and actor.rig.models == actor.models
        return good and not actor.rig.failures and self.remembered() == self.began_with

    def remembered(self):
        return {key: value for key, value in self.router.metrics("kvway_").items() if key[0] in REMEMBERED}

    def stop(self):
        """Raises AssertionError where kvway did not end well or a sanitizer found something."""
        try:
            self.router.stop()
        finally:
            self.kill()

    def kill(self):
        for actor in self.workers.values():
            actor.rig.stop()
        if self.router:
            self.router.kill()

    # --- what workers receive ---

    def queue(self, heard):
        with self.changed:
            self.waiting.append(heard)
            self.changed.notify_all()

    def receive(self, wanted, expected):
        """The next request of those for which wanted(heard) holds, in the order in which they came."""
        deadline = time.monotonic() + WAIT.s
        with self.changed:
            while True:
                for heard in self.waiting:
                    if wanted(heard):
                        self.waiting.remove(heard)
                        self.held.append(heard)
                        return heard
                if not self.changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    raise Failure(expected, f"no request, for {WAIT.s:g} s{self.others()}")

    def others(self):
        have = [f"{heard.worker} received {heard.ex.method} {heard.ex.target}" for heard in self.waiting]
        return "; " + ", ".join(have) if have else ""

    # --- what kvway says of itself ---

    def log(self):
        """What kvway has logged since the case began."""
        with self.router.log_path.open("rb") as file:
            file.seek(self.log_from)
            return file.read()

    def last_lines(self):
        return self.router.log().splitlines()[-LAST_LINES:]

    def metric(self, name, labels, since=True):
        """Sum of the samples with these labels, as an increase since the case began or as it is."""
        total = 0.0
        for (sample, have), value in self.router.metrics(name).items():
            if sample == name and all(pair in have for pair in labels):
                total += value - (self.metrics.get((sample, have), 0.0) if since else 0.0)
        return total


def close_of(heard, reset):
    """Closes a worker's connection, by FIN or RST; its thread may wait in it."""
    ex = heard.ex
    ex.keep = False
    try:
        if reset:
            ex.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            ex.sock.shutdown(socket.SHUT_RD)
        else:
            ex.sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # kvway was quicker
    heard.go_on.set()
    wait_for(heard.ended, "its connection closed", lambda: "it is open")


def usual(ex):
    """The answer of a worker that says nothing else: OpenAI's shape, plain or streamed, with the worker's name."""
    usual_answer(ex)


def read_late(ex):
    """Reads a request's body now, in one bounded wait."""
    ex.sock.settimeout(WAIT.s)
    try:
        return ex.read_body()
    except (Closed, OSError) as error:
        raise Failure("the whole body of the request", str(error)) from None
    finally:
        if ex.sock.fileno() != -1:
            ex.sock.settimeout(None)


def key_of(case):
    """Of cases that are alike in this, one kvway may serve several."""
    return repr((sorted(case.config.items()), sorted(case.files.items()), case.workers, sorted(case.settings.items())))


class Stages:
    """The one stage that runs. directory(): a new one."""

    def __init__(self, directory):
        self.directory = directory
        self.key = self.stage = None

    def of(self, case):
        key = key_of(case)
        if self.key != key or self.stage is None:
            self.close()
            self.stage, self.key = Stage(self.directory(), case), key
        return self.stage

    def ended(self):
        """After a case that went well: the next one has another kvway where this one remembers something."""
        if not self.stage.end():
            self.close()

    def failed(self):
        """After one that did not."""
        stage, self.stage = self.stage, None
        if stage is not None:
            stage.kill()

    def close(self):
        stage, self.stage = self.stage, None
        if stage is not None:
            stage.stop()
