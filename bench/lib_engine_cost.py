"""engine --only cost: what the connector costs when no prompt comes twice.

Two engines of one kind, with chunks in memory, and then two with memory and files. In each half of a round both
answer the same new prompts; one computes and stores all of them, the other has its connector switched off
(lib_engine_switch.py) and only computes. In the other half, with new prompts of the same lengths, it is the other
way round. A first round is not counted; it fills the memory, which is small, so that each further chunk also evicts
one.

The engines change sides because two processes of the same program differ by some percent, depending on where their
memory lies; this way the difference is in both halves, with opposite signs. They take turns because the speed of a
core on a shared machine changes all the time, by as much from one tenth of a second to the next as from one minute
to the next: both share one core, and each runs for a twentieth of a second while the other is stopped (SIGSTOP).
Wall-clock times mean nothing under these conditions and are not reported; `gain` measures them.

Processor time is that of the engine's whole process tree (user and system), from before the first prompt until
DRAIN_S after the last answer, so that it includes copies still under way. With the connector switched off its
threads sleep; what they use then is not counted, since without a connector there would be none. No process spins
while it waits (lib_engine_nospin.py). The worker process, which does the connector's work, is also reported alone.

The gate: with 95 % confidence (Student's t over the rounds' ratios) at most 2 % more processor time for a token.
"""

import concurrent.futures
import math
import os
import random
import signal
import statistics
import threading
import time

import lib_report as report
from lib_engine_serve import Engine, Others, new_prompt
from lib_engine_switch import HAVE, NONE
from lib_procs import BenchError, cores

GATE = 0.02
LENGTHS = (500, 1000, 1500, 2000, 3000, 4000)
QUICK = (500, 1500)
ANSWER = 24
AT_ONCE = 2
TURN_S = 0.05
CHUNK = 256  # tokens
OWN = "thread kvt-"  # the connector's own threads
DRAIN_S = 1.2  # longer than nvme.sync_time, after which written files are synced
MEMORY = {"capacity": "64MiB"}
LEAST_S = 0.2e-6  # a thread's seconds per token below which it is left out
# Two-sided 95 % of Student's t, from one degree of freedom on.
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
       2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
       2.045, 2.042)


class Side:
    """One of two engines, which has its connector in one half of each round."""

    def __init__(self, engine):
        self.engine = engine
        self.before = {}
        self.chunks = 0  # chunks of the prompts that it answered with the connector

    def spent(self):
        """Returns seconds of processor time so far: of the engine's processes, of its worker, of each of the worker's threads."""
        tree, worker = self.engine.cpu()
        return {"cpu": tree, "worker_cpu": worker,
                **{f"thread {name}": seconds for name, seconds in self.engine.threads().items()}}

    def begin(self, wanted, prompts):
        """Begins a half of a round, with the connector (HAVE) or without it (NONE)."""
        self.engine.want(wanted)
        if wanted == HAVE:
            self.chunks += sum((len(prompt) + ANSWER) // CHUNK for prompt in prompts)
        self.before = self.spent()

    def answer(self, prompts):
        """Has the engine answer all prompts, some at a time."""
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda prompt: self.engine.ask(prompt, ANSWER), prompts))

    def end(self, wanted):
        """Returns the processor time that this half used."""
        self.engine.check_got(wanted)
        used = {key: value - self.before.get(key, 0.0) for key, value in self.spent().items()}
        if wanted == HAVE:
            return used
        own = sum(value for key, value in used.items() if key.startswith(OWN))
        return {key: value - own if key.endswith("cpu") else value for key, value in used.items()
                if not key.startswith(OWN)}

    def check_stored(self):
        """Raises BenchError unless exactly the chunks of prompts with the connector were stored."""
        stored = self.engine.count("kvtier:stored_chunks_total")
        if not 0.9 * self.chunks <= stored <= 1.05 * self.chunks:
            raise BenchError(f"engine {self.engine.label}: {stored:.0f} chunks stored, {self.chunks} were to be: "
                             "the figures would not say what they claim")


class Subject:
    """One kind of engine (its tiers), and the processor time of its rounds with and without the connector."""

    def __init__(self, name, cache):
        self.name, self.cache = name, cache
        self.rounds = {HAVE: [], NONE: []}  # one dict a round: {process or thread: seconds per token}
        self.others = 0.0  # cores that other programs used during the rounds, on average


def interval(values):
    """Returns (mean, lower end, upper end) of the 95 % confidence interval."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return mean, -math.inf, math.inf
    t = T95[min(len(values) - 1, len(T95)) - 1]
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def take_turns(work):
    """Lets one engine at a time run, until all threads have ended. work: {engine: the thread that sends it requests}."""
    for engine in work:
        engine.signal(signal.SIGSTOP)
    try:
        while left := [engine for engine, thread in work.items() if thread.is_alive()]:
            for engine in left:
                engine.signal(signal.SIGCONT)
                work[engine].join(TURN_S)
                engine.signal(signal.SIGSTOP)
    finally:
        for engine in work:
            engine.signal(signal.SIGCONT)


def half(sides, prompts):
    """Has both sides answer the prompts; returns the processor time of each. sides: (the one with the connector, the one without)."""
    failures = []

    def answer(side):
        try:
            side.answer(prompts)
        except BaseException as error:  # the caller's thread raises it below
            failures.append(error)

    work = {side.engine: threading.Thread(target=answer, args=(side,)) for side in sides}
    for side, wanted in zip(sides, (HAVE, NONE)):
        side.begin(wanted, prompts)
    for thread in work.values():
        thread.start()
    take_turns(work)
    if failures:
        raise failures[0]
    time.sleep(DRAIN_S)
    return [side.end(wanted) for side, wanted in zip(sides, (HAVE, NONE))]


def one_round(sides, lengths, rng):
    """Runs both halves; returns seconds per token, by process and thread: {HAVE: {name: seconds}, NONE: the same}."""
    tokens = len(sides) * sum(length + ANSWER for length in lengths)
    sums = {HAVE: {}, NONE: {}}
    for order in rng.sample((sides, sides[::-1]), 2):
        prompts = [new_prompt(rng, length) for length in rng.sample(lengths, len(lengths))]
        for wanted, used in zip((HAVE, NONE), half(order, prompts)):
            for key, value in used.items():
                sums[wanted][key] = sums[wanted].get(key, 0.0) + value / tokens
    return sums


def ratios_of(subject, key):
    """Returns for each round the time with the connector divided by the time without it."""
    return [a[key] / b[key] for a, b in zip(subject.rounds[HAVE], subject.rounds[NONE])]


def report_threads(subject):
    """Prints what each of the worker's threads adds, as a sentence and as JSON lines; leaves out those that add hardly anything."""
    both = list(zip(subject.rounds[HAVE], subject.rounds[NONE]))
    names = sorted({key for pair in both for figures in pair for key in figures if key.startswith("thread ")})
    parts = []
    for name in names:
        added = statistics.mean(a.get(name, 0.0) - b.get(name, 0.0) for a, b in both)
        if abs(added) < LEAST_S:
            continue
        report.emit("engine", "added_thread_cpu_per_token", added, "s", thread=name[len("thread "):],
                    tiers=subject.name, rounds=len(both))
        parts.append(f"{name[len('thread '):]} {added * 1e6:+.1f}")
    if parts:
        report.say(f"  {subject.name}, us a token added by the worker's threads: {', '.join(parts)}")


def report_one(rows, subject, key, metric, **more):
    """Prints what the connector adds to one figure; returns (mean, lower end, upper end) of the ratio."""
    without = report.median_of(subject.rounds[NONE], key)
    mean, low, high = interval(ratios_of(subject, key))
    added, least, most = interval([a[key] - b[key]
                                   for a, b in zip(subject.rounds[HAVE], subject.rounds[NONE])])
    report.emit("engine", metric, added, "s", low=least, high=most, peer="without the connector",
                ratio=mean, ratio_low=low, ratio_high=high, peer_value=without,
                tiers=subject.name, rounds=len(subject.rounds[NONE]), **more)
    rows.append([f"{metric}, {subject.name}", without * 1e6, added * 1e6,
                 f"{(mean - 1) * 100:+.2f} %", f"{(low - 1) * 100:+.2f} to {(high - 1) * 100:+.2f} %"])
    return mean, low, high


def report_costs(subjects):
    """Prints JSON lines and the table; returns sentences, and whether the cost is within its limit (the gate)."""
    rows, sentences, held = [], [], True
    others = max(subject.others for subject in subjects)
    for subject in subjects:
        mean, low, high = report_one(rows, subject, "cpu", "added_cpu_per_token", gate=GATE)
        report_one(rows, subject, "worker_cpu", "added_worker_cpu_per_token")
        held = held and high - 1 <= GATE
        sentences.append(f"processor time added with {subject.name}: {(mean - 1) * 100:.2f} % "
                         f"({(low - 1) * 100:.2f} to {(high - 1) * 100:.2f})")
    report.table(f"nothing asked twice, {len(subjects[0].rounds[NONE])} rounds, us of processor time; others used "
                 f"{others:.2f} cores", ["", "without", "added", "mean", "95 %"], rows)
    for subject in subjects:
        report_threads(subject)
    for sentence in sentences:
        report.say("  " + sentence)
    report.say(f"  gate (at most {GATE * 100:.0f} % more processor time for a token, with 95 % confidence): "
               + ("held" if held else "NOT held"))
    return sentences, held


def measure(subject, options, shop, setup, rng):
    """Runs all rounds of the two engines of one kind."""
    core, _ = cores()
    sides = []
    report.say(f"starting two engines: {subject.name}")
    try:
        for number in range(2):
            label = f"{subject.name.replace(' ', '-')}-{number}"
            cache = {tier: {**keys, **({"path": shop.path(f"store-{label}")} if tier == "nvme" else {})}
                     for tier, keys in subject.cache.items()}
            sides.append(Side(Engine(shop, label, setup, cache, switch=True, core=core)))
        for side in sides:
            side.engine.wait_ready()
        others = Others()
        for number in range(-1, options.rounds):
            figures = one_round(sides, QUICK if options.quick else LENGTHS, rng)
            if number < 0:
                continue
            for wanted, used in figures.items():
                subject.rounds[wanted].append(used)
            report.say(f"  {subject.name}, round {number + 1} of {options.rounds}: us of processor time for a "
                       f"token: with {figures[HAVE]['cpu'] * 1e6:.1f}, without {figures[NONE]['cpu'] * 1e6:.1f}")
        subject.others = others.cores()
        for side in sides:
            side.check_stored()
    finally:
        for side in sides:
            side.engine.stop()


def bench_cost(options, shop, setup):
    """Measures each kind of engine; returns sentences, and whether the cost is within its limit (the gate)."""
    subjects = [Subject("l1", {"l1": MEMORY}),
                Subject("l1 and nvme", {"l1": MEMORY, "nvme": {"capacity": "2GiB"}})]
    rng = random.Random(os.urandom(8))
    for subject in subjects:
        measure(subject, options, shop, setup, rng)
    return report_costs(subjects)
