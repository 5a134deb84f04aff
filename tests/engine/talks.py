"""Fifty talks of ten turns, four at a time, and how many of kvway's predictions for them came true."""

import collections
import concurrent.futures
import random
import threading

from mixed import CHAT, prose
from told import send

CONVERSATIONS, TURNS, AT_ONCE = 50, 10, 4
CONFIG = {
    "routing.strategy": "kvaware",
    "http.decision_headers": "on_request",
    "expose.engine_control": True,
    "routing.slow_start": "0s",
    "kvaware.tokens.timeout": "5s",  # of an engine that shares two cores with all the others
}


class Talks:
    """Conversations with one system prompt; each turn contains all before it. rounds: how many turns of each are
    played by rounds of all talks; the others follow each other at once, four talks at a time."""

    def __init__(self, seed, rounds=TURNS):
        rng = random.Random(seed)
        system = {"role": "system", "content": prose(rng, 1500)}
        self.rngs = [random.Random(rng.random()) for _ in range(CONVERSATIONS)]
        self.messages = [[system] for _ in range(CONVERSATIONS)]
        self.locks = [threading.Lock() for _ in range(CONVERSATIONS)]
        self.turns = [number for _ in range(rounds) for number in range(CONVERSATIONS)]
        for first in range(0, CONVERSATIONS, AT_ONCE):
            self.turns += list(range(CONVERSATIONS))[first : first + AT_ONCE] * (TURNS - rounds)

    def step(self, router, number):
        with self.locks[number]:
            rng, messages = self.rngs[number], self.messages[number]
            messages.append({"role": "user", "content": prose(rng, rng.choice((40, 150, 400)))})
            text, seen = send(router, CHAT, {"messages": list(messages), "max_tokens": 24})
            messages.append({"role": "assistant", "content": text})
            return number, seen


def run(router, talks, turns):
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda number: talks.step(router, number), turns))


def off(seen):
    return abs(seen.predicted - seen.actual)


def report(router, name, rows, slack):
    """Prints which predictions came true within so many tokens; their share."""
    wrong = [(number, seen) for number, seen in rows if off(seen) > slack]
    share = 1 - len(wrong) / len(rows)
    tokens = {what: sum(getattr(seen, what) for _, seen in rows) for what in ("prompt", "predicted", "actual")}
    prompts = {
        why: int(router.metric("kvway_kvaware_prompts_total", tokens=why))
        for why in ("exact", "no_tokens", "no_view", "no_choice", "timeout", "failed", "busy")
    }
    known = collections.Counter(seen.knowledge for _, seen in rows)
    mean = sum(off(seen) for _, seen in rows) / len(rows)
    print(
        f"\n{name}: {len(rows)} requests, {share:.2%} within {slack} tokens, mean error {mean:.1f}, tokens {tokens}, "
        f"known {dict(known)}, prompts {prompts}"
    )
    for number, seen in wrong:
        print(f"  conversation {number}: {seen}")
    return share
