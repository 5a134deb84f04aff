"""engine --only cost: what the connector costs where nothing is ever asked twice.

Three engines with the same model, all running: without the connector, with chunks in memory, and with memory
and files. A round gives each of them the same prompts, which nobody has seen: it computes all tokens, and with
the connector stores all of them for nothing. They take turns after every three prompts, forwards and backwards
alternately, and a round is the sum of these. One round before the first is not counted, and the memory
is small enough to be full then, so that each further chunk also evicts one.

Processor time is that of the engine's whole process tree (user and system), from before the first request
until a moment after the last answer, in which copies that are still under way are finished. Engines that are not
in turn are not counted. Nobody spins (lib_engine_nospin.py). The worker's process, which does the work that
is to be paid for, is told beside the tree.

The gate: with 95 % confidence (Student's t over the rounds' ratios) at most 2 % more processor time for a token.
"""

import concurrent.futures
import math
import os
import random
import statistics
import time

import lib_report as report
from lib_engine_serve import Engine, Others, new_prompt

GATE = 0.02
LENGTHS = (500, 1000, 1500, 2000, 3000, 4000)
QUICK = (500, 1500)
ANSWER = 24
AT_ONCE = 2
BATCH = 3  # prompts until the next engine's turn
DRAIN_S = 1.2  # longer than files wait until they are made durable (nvme.sync_time)
MEMORY = {"capacity": "64MiB"}
LEAST_S = 0.2e-6  # of a thread for a token
# Two-sided 95 % of Student's t, from one degree of freedom on.
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
       2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
       2.045, 2.042)


class Subject:
    """An engine, and a dict of figures for each round."""

    def __init__(self, name, engine):
        self.name, self.engine = name, engine
        self.rounds = []


def interval(values):
    """(mean, lower end, upper end) with 95 % confidence."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return mean, -math.inf, math.inf
    t = T95[min(len(values) - 1, len(T95)) - 1]
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def play(engine, prompts):
    """One engine answers some prompts: its figures as sums."""
    before, threads = engine.cpu(), engine.threads()
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        times = list(pool.map(lambda prompt: engine.ask(prompt, ANSWER), prompts))
    elapsed = time.monotonic() - began
    time.sleep(DRAIN_S)
    after = engine.cpu()
    used = {f"thread {name}": seconds - threads.get(name, 0.0) for name, seconds in engine.threads().items()}
    return {**used, "cpu": after[0] - before[0], "worker_cpu": after[1] - before[1], "elapsed": elapsed,
            "first": sum(first for first, _ in times), "prompts": len(prompts),
            "tokens": sum(len(prompt) + ANSWER for prompt in prompts)}


def one_round(everyone, lengths, rng, number):
    """The same new prompts for all, some at a time, the order turned around each time: {name: figures}."""
    lengths = rng.sample(lengths, len(lengths))
    sums = {subject.name: {} for subject in everyone}
    for turn, at in enumerate(range(0, len(lengths), BATCH), number):
        prompts = [new_prompt(rng, length) for length in lengths[at:at + BATCH]]
        for subject in everyone if turn % 2 == 0 else everyone[::-1]:
            kept = sums[subject.name]
            for key, value in play(subject.engine, prompts).items():
                kept[key] = kept.get(key, 0) + value
    return {name: {**{key: kept[key] / kept["tokens"] for key in kept if key.startswith("thread ")},
                   "cpu": kept["cpu"] / kept["tokens"], "worker_cpu": kept["worker_cpu"] / kept["tokens"],
                   "ttft": kept["first"] / kept["prompts"],
                   "tokens_per_second": kept["tokens"] / kept["elapsed"]} for name, kept in sums.items()}


def ratios_of(subject, plain, key):
    """With the connector / without, of each round."""
    return [a[key] / b[key] for a, b in zip(subject.rounds, plain.rounds)]


def tell_threads(subject, plain):
    """What each of the worker's threads adds, for people and as a line each; next to nothing is left out."""
    names = sorted({key for figures in subject.rounds for key in figures if key.startswith("thread ")})
    parts = []
    for name in names:
        added = statistics.mean(a.get(name, 0.0) - b.get(name, 0.0)
                                for a, b in zip(subject.rounds, plain.rounds))
        if abs(added) < LEAST_S:
            continue
        report.emit("engine", "added_thread_cpu_per_token", added, "s", thread=name[len("thread "):],
                    tiers=subject.name, rounds=len(plain.rounds))
        parts.append(f"{name[len('thread '):]} {added * 1e6:+.1f}")
    if parts:
        report.say(f"  {subject.name}, us a token added by the worker's threads: {', '.join(parts)}")


def tell_one(rows, subject, plain, key, metric, unit, scale, **more):
    """One figure: what the connector adds. Returns the upper end of the ratio's interval."""
    mean, low, high = interval(ratios_of(subject, plain, key))
    added, least, most = interval([a[key] - b[key] for a, b in zip(subject.rounds, plain.rounds)])
    report.emit("engine", metric, added, unit, low=least, high=most, peer="without the connector",
                ratio=mean, ratio_low=low, ratio_high=high, peer_value=report.median_of(plain.rounds, key),
                tiers=subject.name, rounds=len(plain.rounds), **more)
    rows.append([f"{metric}, {subject.name}", report.median_of(plain.rounds, key) * scale, added * scale,
                 f"{(mean - 1) * 100:+.2f} %", f"{(low - 1) * 100:+.2f} to {(high - 1) * 100:+.2f} %"])
    return high


def tell(plain, subjects, others):
    """JSON lines and the table; returns sentences, and whether the gate held."""
    rows, sentences, held = [], [], True
    for subject in subjects:
        high = tell_one(rows, subject, plain, "cpu", "added_cpu_per_token", "s", 1e6, gate=GATE)
        tell_one(rows, subject, plain, "worker_cpu", "added_worker_cpu_per_token", "s", 1e6)
        tell_one(rows, subject, plain, "ttft", "added_ttft_seconds", "s", 1e3)
        tell_one(rows, subject, plain, "tokens_per_second", "added_tokens_per_second", "tokens/s", 1)
        mean, low, _ = interval(ratios_of(subject, plain, "cpu"))
        held = held and high - 1 <= GATE
        sentences.append(f"processor time added with {subject.name}: {(mean - 1) * 100:.2f} % "
                         f"({(low - 1) * 100:.2f} to {(high - 1) * 100:.2f})")
    report.table(f"nothing asked twice, {len(plain.rounds)} rounds (us of processor time; ms; tokens/s); others "
                 f"used {others:.2f} cores", ["", "without", "added", "mean", "95 %"], rows)
    for subject in subjects:
        tell_threads(subject, plain)
    for sentence in sentences:
        report.say("  " + sentence)
    report.say(f"  gate (at most {GATE * 100:.0f} % more processor time for a token, with 95 % confidence): "
               + ("held" if held else "NOT held"))
    return sentences, held


def bench_cost(options, shop, setup):
    """Rounds on three engines; returns sentences, and whether the gate held."""
    plain = Subject("nothing", Engine(shop, "without", setup))
    nvme = {"path": shop.path("cost-store"), "capacity": "2GiB"}
    subjects = [Subject("l1", Engine(shop, "with-l1", setup, {"l1": MEMORY})),
                Subject("l1 and nvme", Engine(shop, "with-nvme", setup, {"l1": MEMORY, "nvme": nvme}))]
    everyone = [plain, *subjects]
    try:
        report.say(f"starting {len(everyone)} engines")
        for subject in everyone:
            subject.engine.wait_ready()
        rng = random.Random(os.urandom(8))
        others = None
        for number in range(-1, options.rounds):
            figures = one_round(everyone, QUICK if options.quick else LENGTHS, rng, number)
            if number < 0:
                others = Others()
                continue
            for subject in everyone:
                subject.rounds.append(figures[subject.name])
            now = ", ".join(f"{subject.name} {subject.rounds[-1]['cpu'] * 1e6:.1f}" for subject in everyone)
            report.say(f"  round {number + 1} of {options.rounds}: us of processor time for a token: {now}")
        for subject in subjects:
            if subject.engine.count("kvtier:stored_chunks_total") == 0:
                report.say(f"  {subject.name}: stored nothing, so this says nothing")
                return [], False
        return tell(plain, subjects, others.cores())
    finally:
        for subject in everyone:
            subject.engine.stop()
