"""What the parts of l2 share: running a program of bench/l2, taking turns, reporting a pair."""

import json
import os
import subprocess

import lib_report as report
from lib_procs import BenchError, pinned

ROUNDS = 9
GB = 1e9


def rounds_of(options):
    """Returns the number of rounds."""
    return 2 if options.small else max(options.rounds, ROUNDS)


class Program:
    """A program of bench/l2 that prints one JSON object, pinned to a core."""

    def __init__(self, options, name, core):
        self.path = os.path.join(options.build, "bench/l2", name)
        self.core = core
        if not os.path.exists(self.path):
            raise BenchError(f"{self.path} is not built")

    def run(self, *args, lines=False):
        """Runs the program; returns the object that it printed, with `lines` the list of all that it printed."""
        done = subprocess.run(pinned([self.path, *map(str, args)], self.core), check=False, capture_output=True,
                              text=True, timeout=300)
        if done.returncode != 0:
            words = (done.stderr or done.stdout).strip().splitlines()
            raise BenchError(f"{os.path.basename(self.path)}: {words[-1] if words else 'failed'}")
        result = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return result if lines else result[-1]


def take_turns(index, ours, peer):
    """Calls ours() and peer() once each, ours() first in every second round; returns both results."""
    if index % 2:
        theirs = peer()
        return ours(), theirs
    mine = ours()
    return mine, peer()


def emit_pair(metric, unit, ours, theirs, key, peer, **more):
    """Prints one figure of both programs as a JSON line; returns its row of the table. Lists have a dict per round."""
    low, high = report.spread_of(ours, key)
    peer_low, peer_high = report.spread_of(theirs, key)
    ratio = report.ratio_of(ours, theirs, key)
    ratios = sorted(a[key] / b[key] for a, b in zip(ours, theirs) if b[key])
    report.emit("l2", metric, report.median_of(ours, key), unit, peer=peer, ratio=ratio,
                peer_value=report.median_of(theirs, key), low=low, high=high, peer_low=peer_low,
                peer_high=peer_high, ratio_low=ratios[0], ratio_high=ratios[-1], pairs=len(ours), **more)
    scale = GB if unit == "bytes/s" else 1.0
    return [report.median_of(ours, key) / scale, f"{low / scale:.3g}-{high / scale:.3g}",
            report.median_of(theirs, key) / scale, f"{peer_low / scale:.3g}-{peer_high / scale:.3g}",
            f"{ratio:.3f}", f"{ratios[0]:.2f}-{ratios[-1]:.2f}"]


def emit_alone(metric, unit, rounds, key, **more):
    """Prints one figure without a peer as a JSON line; returns median and spread."""
    low, high = report.spread_of(rounds, key)
    value = report.median_of(rounds, key)
    report.emit("l2", metric, value, unit, low=low, high=high, rounds=len(rounds), **more)
    return [value, "-".join(f"{end:.4g}" if end < 1000 else f"{end:.0f}" for end in (low, high))]
