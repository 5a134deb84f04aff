#!/usr/bin/env python3
"""What clients see when one of two real engines sleeps, stops or dies under them.

    outages.py [options] [OUTAGE...]

    sleep_admin   POST /broadcast/sleep?level=1 on kvway's admin address, for one engine; woken there, too
    sleep_direct  POST /sleep?level=1 at the engine itself, without kvway; woken there
    kill          SIGKILL of all of the engine's processes; started again on the same port
    core_kill     SIGKILL of all but its API server; then as kill
    stop          SIGSTOP of all of its processes
    core_stop     SIGSTOP of all but its API server

Eight clients stream completions and chats without a pause meanwhile, one prompt in four a long one. For
each outage a line says how many requests ended during it; how many of them were cut (an answer that had
begun) and how many failed (without a token); the longest wait for a first token; when kvway stopped
sending to the engine; when a request was answered there again, counted from when it was ready to.
Exit status 1 when a request failed, or waited longer than --patience.
"""

import argparse
import dataclasses
import http.client
import json
import random
import signal
import sys
import threading
import time

from pair import START_SECONDS, Pair, add_options
from rig.client import ask
from rig.wait import until

WORDS = "the a small great sea ship king island sails sends keeps says old young cold far".split()


@dataclasses.dataclass
class Asked:
    """One request, as its client saw it."""

    begun: float
    kind: str
    first: float = None  # when its first token came
    ended: float = 0
    finish: str = ""  # why the engine says that it ended
    why: str = ""  # what went wrong

    @property
    def waited(self):
        return (self.first or self.ended) - self.begun


class Client(threading.Thread):
    """Asks again and again, as soon as it is answered."""

    def __init__(self, port, number, over, asked):
        super().__init__(daemon=True)
        self.port, self.random = port, random.Random(number)
        self.over, self.asked = over, asked

    def run(self):
        turn = 0
        while not self.over.is_set():
            turn += 1
            chat = self.random.random() < 0.5
            words = 1200 if self.random.random() < 0.25 else 30
            prompt = f"{self.ident} {turn} " + " ".join(self.random.choices(WORDS, k=words))
            body = {"model": "tiny", "max_tokens": 24, "stream": True, "temperature": 0, "ignore_eos": True}
            body |= {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
            request = Asked(time.monotonic(), "chat" if chat else "completion")
            try:
                self.ask("/v1/chat/completions" if chat else "/v1/completions", body, request)
            except (OSError, http.client.HTTPException) as error:
                request.why = repr(error)
            request.ended = time.monotonic()
            self.asked.append(request)
            if request.why:
                time.sleep(0.2)

    def ask(self, path, body, request):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                request.why = f"{answer.status} {answer.read().decode()[:200]}"
                return
            done = False
            for line in answer:
                if line.startswith(b"data: [DONE]"):
                    done = True
                elif line.startswith(b"data: "):
                    self.take(json.loads(line[6:]), request)
            if not request.why and (not done or request.finish != "length"):
                request.why = f"it ended with {request.finish or 'no reason'}"
        finally:
            connection.close()

    def take(self, event, request):
        if "error" in event:
            request.why = str(event["error"])[:200]
        for choice in event.get("choices", []):
            if choice.get("delta", {}).get("role"):
                continue  # it comes before the first token
            # An engine that aborts before the first token says so in an event without one.
            if request.first is None and not (choice["finish_reason"] == "abort" and not text_of(choice)):
                request.first = time.monotonic()
            request.finish = choice["finish_reason"] or request.finish


def text_of(choice):
    return choice.get("text") or choice.get("delta", {}).get("content") or ""


class Outage:
    """One engine of two is not there for a while."""

    def __init__(self, options, pair, router, asked):
        self.options, self.router, self.asked = options, router, asked
        self.engine = pair.engines[0]
        self.name = self.engine.url.removeprefix("http://")

    def run(self, kind):
        """Returns whether all went well."""
        begin, end = getattr(self, kind), getattr(self, f"end_{kind}")
        until(lambda: self.router.usable(self.engine), 150, "the engine in use")
        until(self.is_served, 60, "the engine busy")
        time.sleep(2)
        start = time.monotonic()
        watch = Watch(self.router, self.engine)
        begin()
        time.sleep(max(0, start + self.options.hold - time.monotonic()))
        out = watch.first_unusable
        end()
        ready = time.monotonic()
        answered = self.complete()
        back = None
        while back is None and time.monotonic() < ready + 150:
            if self.complete() > answered:
                back = time.monotonic() - ready
            time.sleep(0.05)
        watch.end()
        time.sleep(3)
        return self.report(kind, start, out and out - start, back)

    def complete(self):
        return self.router.sum(
            "kvway_requests_total", worker=self.engine.url, end="complete", status="200"
        )  # fmt: skip

    def is_served(self):
        before = self.complete()
        time.sleep(0.5)
        return self.complete() > before

    def report(self, kind, start, out, back):
        mine = [r for r in list(self.asked) if r.ended >= start]
        cut = [r for r in mine if r.why and r.first is not None]
        failed = [r for r in mine if r.why and r.first is None]
        longest = max(r.waited for r in mine)
        out = "never" if out is None else f"after {out:.1f} s"
        back = "never" if back is None else f"{back:.1f} s after it was ready"
        print(
            f"{kind}: {len(mine)} requests, {len(cut)} cut, {len(failed)} failed; longest wait for a first "
            f"token {longest:.1f} s; left alone {out}; answers again {back}",
            flush=True,
        )
        for r in (failed + cut)[:4]:
            print(f"    {r.kind} begun at {r.begun - start:+.1f} s, {r.ended - r.begun:.1f} s long: {r.why}")
        return not failed and longest <= self.options.patience

    # --- outages and their ends ---

    def told(self, port, method, target):
        answer = ask(port, method, target, timeout=30)
        print(f"    {method} {target}: {answer.status} {answer.body.decode()[:300]}", flush=True)

    def broadcast(self, what):
        self.told(self.router.admin_port, "POST", f"/broadcast/{what}workers={self.name}")

    def sleep_admin(self):
        self.broadcast("sleep?level=1&")

    def end_sleep_admin(self):
        self.told(self.engine.port, "GET", "/is_sleeping")
        self.broadcast("wake_up?")

    def sleep_direct(self):
        self.told(self.engine.port, "POST", "/sleep?level=1")

    def end_sleep_direct(self):
        self.told(self.engine.port, "GET", "/is_sleeping")
        self.told(self.engine.port, "POST", "/wake_up")

    def kill(self):
        self.engine.kill()

    def end_kill(self):
        self.engine.start()
        until(self.engine.healthy, START_SECONDS, "the engine up again")

    def core_kill(self):
        self.engine.signal_to(self.engine.core(), signal.SIGKILL)

    def end_core_kill(self):
        self.engine.kill()
        self.end_kill()

    def stop(self):
        self.stopped = list(self.engine.family())
        self.engine.signal_to(self.stopped, signal.SIGSTOP)

    def core_stop(self):
        self.stopped = self.engine.core()
        self.engine.signal_to(self.stopped, signal.SIGSTOP)

    def end_stop(self):
        self.engine.signal_to(self.stopped, signal.SIGCONT)

    end_core_stop = end_stop


class Watch(threading.Thread):
    """When kvway first said that it does not send to an engine."""

    def __init__(self, router, engine):
        super().__init__(daemon=True)
        self.router, self.engine = router, engine
        self.first_unusable, self.over = None, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.05) and self.first_unusable is None:
            if not self.router.usable(self.engine):
                self.first_unusable = time.monotonic()

    def end(self):
        self.over.set()
        self.join()


SLEEPS = ("sleep_admin", "sleep_direct")
ALL = (*SLEEPS, "kill", "core_kill", "stop", "core_stop")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    add_options(parser)
    parser.add_argument("--config", metavar="FILE", help="keys for kvway's file, without addresses and workers")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--hold", type=float, default=30, metavar="S", help="length of an outage (default 30)")
    parser.add_argument("--patience", type=float, default=20, metavar="S", help="for a first token (default 20)")
    parser.add_argument("outages", nargs="*", metavar="OUTAGE")
    options = parser.parse_args()
    wanted = options.outages or (SLEEPS if options.engines else ALL)
    for name in wanted:
        if name not in (SLEEPS if options.engines else ALL):
            parser.error(f"{name}: no outage, or none of engines that run already")
    text = open(options.config).read() if options.config else ""
    with Pair(options) as pair:
        router = pair.router(text)
        over, asked = threading.Event(), []
        clients = [Client(router.port, number, over, asked) for number in range(options.clients)]
        try:
            for client in clients:
                client.start()
            outage = Outage(options, pair, router, asked)
            well = [outage.run(name) for name in wanted]
        finally:
            over.set()
            for client in clients:
                client.join(5)
            router.kill()
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
