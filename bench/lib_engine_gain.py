"""engine --only gain: time to first token of a prompt that some tier holds, compared with computing it.

Five engines with the same model, all running, one asked at a time: without the connector, and with it over
four configurations. A round asks each of them for each length, in another order each time:

- recompute: a new prompt, without the connector;
- prefix cache: the same prompt again, at once, out of the engine's own memory. It is the floor: whatever
  comes from anywhere else is copied there first;
- warm: a prompt that the tier holds, after /reset_prefix_cache, so that the connector has to answer.

A tier below memory answers only if memory does not hold the chunks: that one is small (64 MiB, LRU), the prompts
are three sets taken in turn, two of them larger than it, so that of two uses of a prompt the others have pushed it out. The
engine's own count of cached tokens by source says whether the tier meant was the one that answered;
a request that another one answered is asked again, after the prompts of the other sets, and never counted. Files are read with O_DIRECT
(the default), so that the kernel's page cache does not answer in the disk's place.
"""

import concurrent.futures
import math
import os
import random
import statistics
import time

import lib_report as report
from lib_engine_serve import Engine, Others, new_prompt
from lib_l2_redis import start_redis
from lib_procs import BenchError

ANSWER = 4  # tokens
SETS = 3
CHUNK = 256  # tokens
MEMORY = {"capacity": "64MiB", "policy": "lru"}
TRIES = 4
REFUSED = "kvtier:refused_chunks_total"
FAILED = "kvtier:failed_blocks_total"
SETTLE_S = 0.3  # copies out of the engine's cache hold its blocks, and a reset needs all of them


class Subject:
    """An engine with a tier, and what it measured."""

    def __init__(self, name, source, engine):
        self.name, self.source, self.engine = name, source, engine
        self.times = {}  # {tokens of the prompt: [seconds to first token, one per round]}
        self.wrong = 0  # answers that did not get all tokens from the tier

    def note(self, tokens, seconds):
        """Records one measured time to first token."""
        self.times.setdefault(tokens, []).append(seconds)


def configurations(shop, daemon):
    """Returns {tier: (vLLM's name of the tokens' source, libkvtier's configuration)}."""
    redis = start_redis(shop, None)[1]
    return {
        "l1": ("host", {"l1": {"capacity": "512MiB"}}),
        "nvme": ("disk", {"l1": MEMORY, "nvme": {"path": shop.path("store"), "capacity": "2GiB"}}),
        "redis": ("external_unspecified", {"l1": MEMORY, "l2": {"url": f"redis://127.0.0.1:{redis}"}}),
        "kvtierd": ("external_unspecified", {"l1": MEMORY, "l2": {
            "url": f"sagemaker-hyperpod://127.0.0.1:{daemon.port}", "segment": daemon.segment}}),
    }


def fill(subject, prompts):
    """Has an engine compute all prompts, and waits until their chunks are where they belong.

    Where a tier stood still for a while, chunks that came then found no room: they are computed once more."""
    for _ in range(TRIES):
        before = subject.engine.count(REFUSED)
        for one_set in prompts:
            for tokens, prompt in one_set.items():
                subject.engine.ask(prompt, 1)
                report.say(f"  {subject.name}: {tokens} tokens computed and stored")
        time.sleep(2)  # chunks reach the lower tiers some time after the answer
        refused = subject.engine.count(REFUSED) - before
        if refused == 0:
            return
        report.say(f"  {subject.name}: {refused:.0f} chunks found no room on their way to the tier; once more")
        subject.engine.forget()
    raise BenchError(f"{subject.name}: chunks found no room {TRIES} times ({REFUSED}); is something slow there?")


def push_out(subject, prompts):
    """Fills the engine's memory below its own cache with these, which takes a few seconds."""
    for one_set in prompts:
        for prompt in one_set.values():
            subject.engine.ask(prompt, 1)


def warm(subject, tokens, prompts, others):
    """Asks the engine a prompt that its tier holds, again until the tier has given all tokens; returns the seconds to the first one."""
    least = (tokens - 1) // CHUNK * CHUNK
    for _ in range(TRIES):
        time.sleep(SETTLE_S)
        subject.engine.forget()
        before, failed = subject.engine.cached(), subject.engine.count(FAILED)
        first, _ = subject.engine.ask(prompts[tokens], ANSWER)
        after, failed = subject.engine.cached(), subject.engine.count(FAILED) - failed
        if after.get(subject.source, 0) - before.get(subject.source, 0) >= least:
            return first
        subject.wrong += 1
        found = {name: after[name] - before.get(name, 0) for name in after if after[name] > before.get(name, 0)}
        report.say(f"  {subject.name}: not all of {tokens} tokens came from there, but {found}, and loads of "
                   f"{failed:.0f} blocks failed; once more")
        push_out(subject, others)
    raise BenchError(f"{subject.name}: {tokens} tokens came from elsewhere {TRIES} times")


def one_round(number, plain, subjects, prompts, rng):
    """Asks every engine a prompt of every length."""
    for tokens in prompts[0]:
        turn = [plain, *subjects]
        turn = turn[number % len(turn):] + turn[:number % len(turn)]
        for subject in turn:
            if subject is not plain:
                turns = prompts[number % len(prompts):] + prompts[:number % len(prompts)]
                subject.note(tokens, warm(subject, tokens, turns[0], turns[1:]))
                continue
            time.sleep(SETTLE_S)
            prompt = new_prompt(rng, tokens)
            plain.note(tokens, plain.engine.ask(prompt, ANSWER)[0])
            plain.floor.note(tokens, plain.engine.ask(prompt, ANSWER)[0])


def percentile(values, share):
    """Returns the smallest value that is at least as large as this share of the values; 0 < share <= 1."""
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered) - 1e-9) - 1]


def report_gains(plain, subjects, lengths, others):
    """Prints JSON lines and the table; returns the plot's lines."""
    rows, lines = [], {}
    names = {"recompute": "ttft_recompute_seconds", "prefix cache": "ttft_prefix_cache_seconds"}
    for tokens in lengths:
        base = plain.times[tokens]
        for subject in [plain, *subjects, plain.floor]:
            times = subject.times[tokens]
            median, slow = statistics.median(times), percentile(times, 0.9)
            ratio = statistics.median(a / b for a, b in zip(times, base))
            more = {} if subject is plain else {"peer": "recompute", "ratio": ratio,
                                                "peer_value": statistics.median(base)}
            report.emit("engine", names.get(subject.name, f"ttft_warm_{subject.name}_seconds"), median, "s",
                        p90=slow, low=min(times), high=max(times), rounds=len(times), prompt_tokens=tokens,
                        **more)
            lines.setdefault(subject.name, []).append((tokens, median, slow))
            floor = statistics.median(plain.floor.times[tokens])
            rows.append([f"{tokens} tokens, {subject.name}", median, slow,
                         f"{min(times):.3g}-{max(times):.3g}", f"{ratio:.3f}", (median - floor) * 1000])
    report.table(f"seconds to first token, {len(base)} rounds; others used {others:.2f} cores",
                 ["", "median", "p90", "from-to", "ratio", "ms over the floor"], rows)
    return lines


def bench_gain(options, shop, setup, daemon):
    """Fills the tiers, then runs the rounds; returns the plot's lines."""
    plain = Subject("recompute", None, Engine(shop, "plain", setup))
    plain.floor = Subject("prefix cache", "device", plain.engine)
    subjects = [Subject(name, source, Engine(shop, name, setup, cache))
                for name, (source, cache) in configurations(shop, daemon).items()]
    everyone = [plain, *subjects]
    try:
        report.say(f"starting {len(everyone)} engines")
        for subject in everyone:
            subject.engine.wait_ready()
        rng = random.Random(os.urandom(8))
        prompts = [{tokens: new_prompt(rng, tokens) for tokens in options.tokens} for _ in range(SETS)]
        report.say("filling the tiers")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda subject: fill(subject, prompts), subjects))
        for tokens in options.tokens:  # once before the rounds: an engine's first prompt of a length takes longer
            plain.engine.ask(new_prompt(rng, tokens), ANSWER)
        others = Others()
        for number in range(options.rounds):
            one_round(number, plain, subjects, prompts, rng)
            last = ", ".join(f"{s.name} {s.times[max(options.tokens)][-1]:.2f} s" for s in everyone)
            report.say(f"  round {number + 1} of {options.rounds}: {max(options.tokens)} tokens: {last}")
        return report_gains(plain, subjects, options.tokens, others.cores())
    finally:
        for subject in everyone:
            subject.engine.stop()
