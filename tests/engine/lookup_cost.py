"""lookup_cost.py [rounds [tokens]] - what the connector adds to the time to a first token, on real engines.

Two engines on one core, one with the connector: the same prompts to both in turn, one token each, each first every
other time. A miss: a prompt
that no engine has seen. A hit: the same again after the engine's own cache was emptied, so that
all of it lies in L1.
Times in milliseconds, median and quartiles, of a machine that does whatever else it does.
"""

import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))

from connected import ConnectedEngine  # noqa: E402


def timed(engine, prompt):
    began = time.monotonic()
    _, cached = engine.complete(prompt, 1)
    return (time.monotonic() - began) * 1000, cached


def show(name, times):
    low, middle, high = statistics.quantiles(times, n=4)
    print(f"{name:28} {middle:7.2f}  ({low:.2f} to {high:.2f})", flush=True)
    return middle


def main(rounds, tokens):
    directory = pathlib.Path(tempfile.mkdtemp())
    engines = [  # equal numbers, but for a multiple of the cores: the same core
        ConnectedEngine(directory, number, cache)
        for number, cache in ((0, None), (os.cpu_count(), {"l1": {"capacity": "256MiB"}}))
    ]
    try:
        plain, connected = (engine.ready() for engine in engines)
        rng = random.Random(5)
        made = [[rng.randrange(10, 600) for _ in range(tokens)] for _ in range(rounds + 5)]
        times = {"miss": ([], []), "hit in L1": ([], []), "hit on the device": ([], [])}
        for number, prompt in enumerate(made):
            for name, both in times.items():
                pairs = list(zip((plain, connected), both, strict=True))
                for engine, found in pairs if number % 2 else reversed(pairs):
                    if name == "hit in L1":
                        engine.forget()
                    took, cached = timed(engine, prompt)
                    if name == "hit in L1" and engine is connected:
                        assert cached > tokens // 2, cached
                    if number >= 5:
                        found.append(took)
        for name, (without, with_it) in times.items():
            a = show(f"{name}, without", without)
            b = show(f"{name}, with the connector", with_it)
            print(f"{'':28} {b - a:+7.2f}")
    finally:
        for engine in engines:
            engine.kill()


main(*(int(word) for word in (sys.argv[1:] + ["40", "1000"][len(sys.argv) - 1 :])))
