"""The arithmetic and the plot of `bench/run.sh engine`, without an engine."""

import argparse
import io
import json
import random
import signal
import sys
import threading
import xml.etree.ElementTree
from pathlib import Path

import pytest
from rig.wait import until

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module", autouse=True)
def path():
    sys.path.insert(0, str(BENCH))
    yield
    sys.path.remove(str(BENCH))


def gate_holds(cost, with_it):
    """Whether the gate held where ten rounds without the connector took 1 s each."""
    subject = cost.Subject("l1", {})
    subject.rounds[cost.NONE] = [{"cpu": 1.0, "worker_cpu": 1.0}] * 10
    subject.rounds[cost.HAVE] = [{"cpu": c, "worker_cpu": c} for c in with_it]
    return cost.report_costs([subject])[1]


def test_the_interval_is_student_s():
    import lib_engine_cost as cost

    # Ten values, standard deviation 3.02765, t = 2.262.
    mean, low, high = cost.interval([float(n) for n in range(1, 11)])
    assert mean == 5.5
    assert high - mean == pytest.approx(2.262 * 3.02765 / 10**0.5, rel=1e-4)
    assert mean - low == pytest.approx(high - mean)
    assert cost.interval([1.0])[2] == float("inf")  # one round says nothing


def test_the_gate_holds_only_with_confidence(capsys):
    import lib_engine_cost as cost

    assert gate_holds(cost, [1.010, 1.012] * 5)
    line = json.loads(capsys.readouterr().out.splitlines()[0])
    assert line["metric"] == "added_cpu_per_token" and line["peer"] == "without the connector"
    assert line["ratio"] == pytest.approx(1.011) and line["gate"] == 0.02
    assert not gate_holds(cost, [1.030, 1.031] * 5)
    assert not gate_holds(cost, [0.9, 1.12] * 5)  # 1 % on average, with too wide an interval


def test_percentiles_are_values_that_were_measured():
    import lib_engine_gain as gain

    assert gain.percentile([float(n) for n in range(1, 11)], 0.9) == 9.0
    assert gain.percentile([3.0, 1.0], 0.9) == 3.0
    assert gain.percentile([1.0], 0.9) == 1.0


def test_an_answer_from_elsewhere_does_not_count(monkeypatch):
    import lib_engine_gain as gain
    from lib_procs import BenchError

    class Engine:
        """Memory holds the last two prompts, and files hold all."""

        def __init__(self, *held):
            self.memory, self.asked, self.tokens = list(held), [], {"host": 0.0, "disk": 0.0}

        def forget(self):
            pass

        def count(self, _metric):
            return 0.0

        def ask(self, prompt, _tokens):
            self.tokens["host" if prompt in self.memory else "disk"] += 768.0
            self.memory = [*self.memory, prompt][-2:]
            self.asked.append(prompt)
            return float(len(self.asked)), 0.0

        def cached(self):
            return dict(self.tokens)

    monkeypatch.setattr(gain, "SETTLE_S", 0)
    subject = gain.Subject("nvme", "disk", Engine("wanted"))
    assert gain.warm(subject, 1000, {1000: "wanted"}, [{1000: "second"}, {1000: "third"}]) == 4.0
    assert subject.engine.asked == ["wanted", "second", "third", "wanted"]
    assert subject.wrong == 1
    with pytest.raises(BenchError, match="elsewhere"):
        gain.warm(gain.Subject("redis", "external_unspecified", Engine()), 1000, {1000: "wanted"}, [])


def test_children_of_a_process_are_counted():
    import os
    import subprocess

    import lib_engine_serve as serve

    # A shell with a child of its own: both are below us.
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo up; wait"], stdout=subprocess.PIPE) as shell:
        shell.stdout.readline()
        # The child has been made by then, and may not have become `sleep` yet.
        until(lambda: sorted(name for name, _ in serve.children_of(shell.pid).values()) == ["sh", "sleep"], 20)
        found = serve.children_of(os.getpid())
        below = serve.children_of(shell.pid)
        for pid in below:
            os.kill(pid, 9)
    assert os.getpid() in found and set(below) < set(found)


class SharedCore:
    """What engines on one core share: which of them run, and which requests each got."""

    def __init__(self):
        self.running, self.most, self.asked = set(), 0, []


class FakeEngine:
    """Uses `speed` seconds for a token, and a twentieth more with its connector, which also has a thread."""

    def __init__(self, name, core, speed):
        self.label, self.core, self.speed = name, core, speed
        self.used, self.own, self.stored, self.wanted = 0.0, 0.0, 0, None
        self.lock = threading.Lock()

    def want(self, wanted):
        self.wanted = wanted

    def check_got(self, wanted):
        assert wanted == self.wanted

    def signal(self, number):
        if number == signal.SIGCONT:
            self.core.running.add(self)
        else:
            self.core.running.discard(self)
        self.core.most = max(self.core.most, len(self.core.running))

    def ask(self, prompt, tokens):
        have = self.wanted == b"1"
        with self.lock:
            self.core.asked.append((self.label, self.wanted, tuple(prompt)))
            self.used += (len(prompt) + tokens) * self.speed * (1.05 if have else 1.0)
            self.own += 0.5  # awake or asleep
            self.stored += (len(prompt) + tokens) // 256 if have else 0

    def cpu(self):
        return 2 * self.used + self.own, self.used + self.own

    def threads(self):
        return {"main": self.used, "kvt-control": self.own}

    def count(self, metric):
        assert metric == "kvtier:stored_chunks_total"
        return self.stored


def test_a_round_cancels_what_is_the_engines_own(monkeypatch):
    """One engine is twice as slow as the other; each has its connector in one half, and only then pays for it."""
    import lib_engine_cost as cost

    monkeypatch.setattr(cost, "DRAIN_S", 0)
    core = SharedCore()
    sides = [cost.Side(FakeEngine("a", core, 0.01)), cost.Side(FakeEngine("b", core, 0.02))]
    lengths = (500, 1000, 1500)
    figures = cost.one_round(sides, lengths, random.Random(1))
    tokens = sum(length + cost.ANSWER for length in lengths)
    own = 0.5 * len(lengths) / tokens  # for each of two engines; counted with the connector only
    assert figures[cost.NONE]["cpu"] == pytest.approx(2 * 0.015)
    assert figures[cost.NONE]["worker_cpu"] == pytest.approx(0.015)
    assert figures[cost.HAVE]["cpu"] == pytest.approx(2 * 0.015 * 1.05 + own)
    assert figures[cost.HAVE]["thread kvt-control"] == pytest.approx(own)
    assert "thread kvt-control" not in figures[cost.NONE]
    for side in sides:
        side.check_stored()
    halves = [core.asked[:6], core.asked[6:]]
    for half in halves:
        by_engine = {name: {(what, prompt) for who, what, prompt in half if who == name} for name in "ab"}
        assert {prompt for _, prompt in by_engine["a"]} == {prompt for _, prompt in by_engine["b"]}
        assert {len(prompt) for _, prompt in by_engine["a"]} == set(lengths)
        assert len({(who, what) for who, what, _ in half}) == 2
    assert {(who, what) for who, what, _ in core.asked} == {(n, w) for n in "ab" for w in (cost.HAVE, cost.NONE)}
    assert core.running == {side.engine for side in sides}  # no engine is left stopped


def test_only_one_engine_goes_on():
    import lib_engine_cost as cost

    core, ended = SharedCore(), threading.Event()
    work = {FakeEngine(name, core, 1.0): threading.Thread(target=ended.wait) for name in "ab"}
    for thread in work.values():
        thread.start()
    turns = threading.Thread(target=cost.take_turns, args=(work,))
    turns.start()
    seen = set()
    until(lambda: seen.update(core.running) or len(seen) == 2, 20)  # each had a turn
    assert core.most == 1
    ended.set()
    turns.join()
    assert core.running == set(work)


def test_chunks_stored_without_the_connector_are_noticed():
    import lib_engine_cost as cost
    from lib_procs import BenchError

    engine = FakeEngine("a", SharedCore(), 0.01)
    side = cost.Side(engine)
    side.begin(cost.HAVE, [[0] * 1000])
    for stored in (0, 6):  # none; more than those of one half
        engine.stored = stored
        with pytest.raises(BenchError, match=f"{stored} chunks stored, 4 were to be"):
            side.check_stored()


def test_a_failure_of_one_engine_ends_the_round():
    import lib_engine_cost as cost

    core = SharedCore()
    good, bad = FakeEngine("a", core, 0.01), FakeEngine("b", core, 0.01)

    def fail(_prompt, _tokens):
        raise RuntimeError("connection lost")

    bad.ask = fail
    with pytest.raises(RuntimeError, match="connection lost"):
        cost.half((cost.Side(good), cost.Side(bad)), [[0] * 10])
    assert core.running == {good, bad}


def test_the_switch_takes_the_connector_and_gives_it_back(tmp_path):
    import lib_engine_switch as switch

    class Scheduler:
        def __init__(self):
            self.connector, self.requests = "connector", {}

        def add_request(self, request):
            self.requests[request] = self.connector

    class Runner:
        def execute_model(self, _output, more):
            return state._KV_CONNECTOR_AGENT, more

    state = argparse.Namespace(_KV_CONNECTOR_AGENT="agent")
    (tmp_path / "switch").write_bytes(switch.HAVE + switch.UNKNOWN)
    ours, theirs = (switch.open_switch(tmp_path / "switch") for _ in range(2))
    switch.change_scheduler(theirs, Scheduler)
    scheduler = Scheduler()
    for wanted, connector in ((switch.HAVE, "connector"), (switch.NONE, None), (switch.HAVE, "connector")):
        ours[switch.WANTED:switch.WANTED + 1] = wanted
        scheduler.add_request("alone")
        ours[switch.WANTED:switch.WANTED + 1] = switch.HAVE if wanted == switch.NONE else switch.NONE
        scheduler.add_request("joins")  # has what the other has
        assert scheduler.requests == {"alone": connector, "joins": connector}
        assert ours[switch.GOT:switch.GOT + 1] == wanted
        scheduler.requests.clear()
    switch.change_worker(state, Runner)
    runner = Runner()
    for planned, agent in ((object(), "agent"), (None, None), (object(), "agent")):
        assert runner.execute_model(argparse.Namespace(kv_connector_metadata=planned), more=7) == (agent, 7)


def test_threads_are_named():
    import os

    import lib_engine_serve as serve

    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    found = serve.threads_of(os.getpid())
    ended.set()
    thread.join()
    assert found.pop("main") > 0 and len(found) > 0
    assert serve.threads_of(0) == {}


def test_the_plot_is_xml(tmp_path):
    from lib_engine_plot import write_plot

    file = tmp_path / "plot.svg"
    write_plot(file, "a < b", ["cost: 1 %"], {"recompute": [(1000, 0.5, 0.6), (4000, 2.0, 2.2)],
                                              "l1": [(1000, 0.03, 0.04), (4000, 0.1, 0.2)]})
    root = xml.etree.ElementTree.parse(io.BytesIO(file.read_bytes())).getroot()
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    words = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", "cost: 1 %", "recompute", "l1", "1000", "4000", "100 ms", "1 s"} <= set(words)


def test_without_an_engine_it_says_what_to_do(monkeypatch, tmp_path):
    import lib_engine
    from lib_procs import BenchError

    options = argparse.Namespace(rounds=5, quick=False, tokens=None, folder=None, build=".", only=None, plot=None)
    for folder in ("", str(tmp_path)):
        monkeypatch.setenv("KVW_ENGINE_VENV", folder)
        with pytest.raises(BenchError, match="KVW_ENGINE_VENV.*install_vllm_cpu.sh"):
            lib_engine.bench_engine(options)
