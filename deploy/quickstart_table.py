#!/usr/bin/python3
"""Prints what deploy/quickstart.sh measured: one table, two strategies side by side.

    quickstart_table.py COLOUR REAL PROFILES ROUNDROBIN.json PREFIXAWARE.json

COLOUR and REAL are yes or no; PROFILES is what `kvsim --list-profiles` printed. The files are
results of `kvbench chat --json`.
"""

import json
import sys

ROWS = (  # title, group, key, scale, digits, more is better
    ("time to first token, mean", "ttft_s", "mean", 1000, 0, False),
    ("                     median", "ttft_s", "p50", 1000, 0, False),
    ("                     99 %", "ttft_s", "p99", 1000, 0, False),
    ("whole answer, mean", "e2e_s", "mean", 1000, 0, False),
    ("              99 %", "e2e_s", "p99", 1000, 0, False),
    ("prompt tokens from cache", None, "cached_share", 100, 1, True),
    ("within the service level", None, "goodput", 100, 1, True),
)


def value(result, group, key):
    table = result.get(group) if group else result
    return (table or {}).get(key)


def gain(first, second, more_is_better):
    """How many times better the second is, as text."""
    if not first or not second:
        return ""
    ratio = second / first if more_is_better else first / second
    if 0.95 < ratio < 1.05:
        return "equal"
    return f"{ratio:.1f}x better" if ratio >= 1 else f"{1 / ratio:.1f}x worse"


def profile_lines(listing, name):
    """The paragraph of `kvsim --list-profiles` on one profile, and its row of numbers."""
    row = next((line for line in listing.splitlines() if line.startswith(name + " ")), "").split()
    at = listing.find(f"\n{name}: ")
    text = listing[at:].strip().split("\n\n")[0].splitlines() if at >= 0 else []
    return row, text


def describe_gpu(listing, name, speed):
    row, text = profile_lines(listing, name)
    yield f"SIMULATED: no GPU was used. Four workers that pretend to be {text[0].partition(': ')[2]},"
    yield (f"prefill {row[1]} tokens/s, attention {row[2]} ns per token pair, step {row[3]} ms, "
           f"decode {row[4]} ms")
    yield (f"per sequence and step, KV cache {int(row[6]):,} tokens each, simulated {speed:g} times "
           "as fast as the clock.")
    for line in text[1:]:
        yield line.strip()


def describe_load(result):
    p = result["parameters"]
    slo = result["slo"]
    requests = result["completed"] + result["failed"]
    first = p["system_tokens"] + p["question_tokens"]
    last = first + (p["rounds"] - 1) * (p["question_tokens"] + p["answer_tokens"])
    yield (f"Workload: {p['users']} conversations of {p['rounds']} questions ({requests} requests), "
           f"{p['system_prompts']} shared system prompts of")
    yield (f"{p['system_tokens']} tokens, questions of {p['question_tokens']}, answers of "
           f"{p['answer_tokens']}; prompts grow from {first:,} to {last:,} tokens;")
    yield f"{p['qps']:g} questions a second, {p['arrivals']} arrivals, open loop."
    level = f"Service level: first token within {slo['ttft_s']:g} s"
    if slo["ttft_tokens_per_s"] < 1e8:
        level += f" + prompt tokens / {slo['ttft_tokens_per_s']:g}"
    yield f"{level}, then {slo['tpot_s'] * 1000:g} ms per token or less."


def print_table(results, simulated, bold, plain):
    first, second = results
    title = f"simulated, speed {first['speed']:g}" if simulated else "your workers"
    print(f"{bold}{title:<28}{'roundrobin':>14}{'prefixaware':>14}   gain{plain}")
    few = min(r["completed"] for r in results) < 100  # of a hundred, the 99th is one
    for title, group, key, scale, digits, more in ROWS:
        if few and key == "p99":
            continue
        cells, pair = [], [value(r, group, key) for r in results]
        unit = " %" if scale == 100 else " ms"
        for v in pair:
            cells.append("unknown" if v is None else f"{v * scale:,.{digits}f}{unit}")
        strong = (bold, plain) if title.endswith("mean") and group == "ttft_s" else ("", "")
        print(f"{strong[0]}{title:<28}{cells[0]:>14}{cells[1]:>14}   {gain(*pair, more)}{strong[1]}")
    if first["failed"] or second["failed"]:
        print(f"{'failed requests':<28}{first['failed']:>14}{second['failed']:>14}")
    print()


def main():
    colour, real, listing, *files = sys.argv[1:]
    bold, dim, plain = ("\033[1m", "\033[2m", "\033[0m") if colour == "yes" else ("", "", "")
    results = []
    for name in files:
        with open(name, encoding="utf-8") as file:
            results.append(json.load(file))
    print_table(results, real != "yes", bold, plain)
    lines = list(describe_load(results[0]))
    if real == "yes":
        lines.insert(0, f"Your workers, model {results[0]['model']}. A small sample; each strategy "
                        "had texts of its own.")
        if value(results[0], None, "cached_share") is None:
            lines.append("Cached tokens: unknown; start vLLM with --enable-prompt-tokens-details to see them.")
        lines.append("So little load shows that it works, not what it gains: `kvbench chat --help` for more.")
    else:
        lines[:0] = describe_gpu(listing, "llama-8b-h100", results[0]["speed"])
    for line in lines:
        print(f"{dim}  {line}{plain}")
    print()
    if any(r["failed"] for r in results):
        for r in results:
            print(f"quickstart: {r['label']}: failed: {r['errors']}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
