"""Figures: medians, ratios of pairs, JSON lines and the table for people.

A ratio is the median of the ratios of pairs measured in the same round, one after the other, and
not the ratio of two medians: on a machine with neighbours the speed of the whole round varies, and
a pair sees the same speed. So value / peer_value may differ a little from ratio.
"""

import json
import statistics
import sys


def emit(bench, metric, value, unit, **more):
    """Prints one JSON line on standard output."""
    line = {"bench": bench, "metric": metric, "value": rounded(value), "unit": unit}
    for key, item in more.items():
        line[key] = rounded(item) if isinstance(item, float) else item
    print(json.dumps(line), flush=True)


def rounded(value):
    """Rounds to five significant digits."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def median_of(rounds, key):
    """Returns the median of one key over the rounds' results."""
    return statistics.median(result[key] for result in rounds)


def spread_of(rounds, key):
    """Returns the smallest and the largest value of one key."""
    values = [result[key] for result in rounds]
    return min(values), max(values)


def ratio_of(ours, theirs, key):
    """Returns the median over the rounds of ours / theirs."""
    return statistics.median(a[key] / b[key] for a, b in zip(ours, theirs) if b[key])


def best_peer(peers, key, smaller_is_better=True):
    """Returns the name of the peer with the best median."""
    pick = min if smaller_is_better else max
    return pick(peers, key=lambda name: median_of(peers[name], key))


def emit_ratios(bench, metric, key, unit, ours, peers, smaller_is_better=True, **more):
    """Prints a JSON line against each peer, and one against the best where there are several."""
    value = median_of(ours, key)
    for name, theirs in peers.items():
        emit(bench, metric, value, unit, peer=name, ratio=ratio_of(ours, theirs, key),
             peer_value=median_of(theirs, key), **more)
    if len(peers) > 1:
        name = best_peer(peers, key, smaller_is_better)
        emit(bench, metric, value, unit, peer="best", ratio=ratio_of(ours, peers[name], key),
             peer_value=median_of(peers[name], key), best=name, **more)


def say(text=""):
    """Prints a line for people, on standard error."""
    print(text, file=sys.stderr, flush=True)


def cell(item, digits=4):
    """Returns a number or a text as tables show it."""
    if isinstance(item, float):
        return f"{item:.{digits}g}" if abs(item) < 10 ** (digits - 1) else f"{item:.0f}"
    return str(item)


def table(title, columns, rows):
    """Prints a table for people; rows are lists of texts and numbers."""
    texts = [columns] + [[cell(item) for item in row] for row in rows]
    widths = [max(len(row[i]) for row in texts) for i in range(len(columns))]
    say()
    say(title)
    for row in texts:
        say("  " + "  ".join(text.ljust(width) if i == 0 else text.rjust(width)
                             for i, (text, width) in enumerate(zip(row, widths))))
