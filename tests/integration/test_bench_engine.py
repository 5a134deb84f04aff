"""The arithmetic and the plot of `bench/run.sh engine`, without an engine."""

import argparse
import io
import json
import sys
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


def rounds(cpu):
    return [{"cpu": c, "worker_cpu": c, "ttft": 1.0, "tokens_per_second": 100.0} for c in cpu]


def told(cost, with_it):
    """Whether the gate held where ten rounds without the connector took 1 s each."""
    plain, subject = cost.Subject("nothing", None), cost.Subject("l1", None)
    plain.rounds, subject.rounds = rounds([1.0] * 10), rounds(with_it)
    return cost.tell(plain, [subject], 0.0)[1]


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

    assert told(cost, [1.010, 1.012] * 5)
    line = json.loads(capsys.readouterr().out.splitlines()[0])
    assert line["metric"] == "added_cpu_per_token" and line["peer"] == "without the connector"
    assert line["ratio"] == pytest.approx(1.011) and line["gate"] == 0.02
    assert not told(cost, [1.030, 1.031] * 5)
    assert not told(cost, [0.9, 1.12] * 5)  # 1 % on average, but nobody knows


def test_percentiles_are_values_that_were_measured():
    import lib_engine_gain as gain

    assert gain.percentile([float(n) for n in range(1, 11)], 0.9) == 9.0
    assert gain.percentile([3.0, 1.0], 0.9) == 3.0
    assert gain.percentile([1.0], 0.9) == 1.0


def test_an_answer_from_elsewhere_does_not_count(monkeypatch):
    import lib_engine_gain as gain
    from lib_procs import BenchError

    class Engine:
        """Answers from memory twice, then from files."""

        asked = 0

        def forget(self):
            pass

        def ask(self, _prompt, _tokens):
            self.asked += 1
            return float(self.asked), 0.0

        def cached(self):
            return {"host": 768.0 * min(self.asked, 2), "disk": 768.0 * max(0, self.asked - 2)}

    monkeypatch.setattr(gain, "SETTLE_S", 0)
    subject = gain.Subject("nvme", "disk", Engine())
    assert gain.warm(subject, 1000, []) == 3.0
    assert subject.wrong == 2
    with pytest.raises(BenchError, match="elsewhere"):
        gain.warm(gain.Subject("redis", "external_unspecified", Engine()), 1000, [])


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


def test_a_round_gives_all_the_same_prompts(monkeypatch):
    """Sums over the turns, for a token; the order is turned around."""
    import random

    import lib_engine_cost as cost

    asked = []

    class Engine:
        used = 0.0

        def __init__(self, name):
            self.name = name

        def ask(self, prompt, _tokens):
            asked.append((self.name, tuple(prompt)))
            self.used += len(prompt) + cost.ANSWER
            return 0.5, 1.0

        def cpu(self):
            return 2 * self.used, self.used

        def threads(self):
            return {"main": self.used}

    monkeypatch.setattr(cost, "DRAIN_S", 0)
    everyone = [cost.Subject(name, Engine(name)) for name in "ab"]
    figures = cost.one_round(everyone, (10, 20, 30, 40), random.Random(1), 0)
    for name in "ab":
        assert figures[name]["cpu"] == 2.0 and figures[name]["worker_cpu"] == 1.0
        assert figures[name]["thread main"] == 1.0 and figures[name]["ttft"] == 0.5
    by_engine = [{prompt for who, prompt in asked if who == name} for name in "ab"]
    assert by_engine[0] == by_engine[1] and len(by_engine[0]) == 4
    assert "".join(who for who, _ in asked) == "aaabbbba"


def test_threads_are_named():
    import os
    import threading

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
