"""The table `printed` of the benchmark `tables`: the command of a publication as it stands there, through kvway with
its defaults, against round robin without kvway's admission.

AWS's "LMCache with SageMaker HyperPod managed tiered storage" prints the command of its benchmark. It runs here word
for word (but for the address, and where the files go) by kvbench, which takes the same options, and with `--peer lmcache`
by the stock `lmcache bench engine` of LMCACHE_PYTHON. Two simulated servers of the 70B model answer it, with L1 of 20 GB
alone and with a kvtierd as L2, at several sizes of the GPUs' KV cache, which is not published.

Both routers take turns, each in front of fresh workers, and the order changes from round to round. Times are the
client's. Speed 1 by default: then nothing of kvway has to be scaled, and its configuration is its defaults and no more.
"""

import statistics

from lib_procs import BenchError
from lib_report import cell, emit, say, table
from lib_tables_client import Kvbench, Stock
from lib_tables_facts import GB, Fleet, Workload, l1_against_l2
from lib_tables_run import run_arm

NAME = "printed"
KV_TOKENS = (200_000, 400_000, 1_000_000)
TIERS = ("l1", "l1+l2")
OPTIONS = {"tokens-per-gb-kvcache": 3000, "kv-cache-volume": 400, "mrc-shared-prompt-length": 2000,
           "mrc-chat-history-length": 10_000, "mrc-user-input-length": 50, "mrc-output-length": 200, "mrc-qps": 8.0,
           "mrc-duration": 180}
SESSIONS = 100  # number of sessions in these options
# kvway's strategy, and further keys of its configuration.
ROUTERS = {"kvway": ("prefixaware", {}), "roundrobin": ("roundrobin", {"admission.enabled": "false"})}
# Figures in which kvway must not be worse than round robin, by more than two runs of one router differ (NOISE).
NEVER_BELOW = ("requests", "output_tokens_per_s", "success")
NOISE = 0.005
# {figure: its name in the table}
ROWS = {"requests": "requests served", "output_tokens_per_s": "output tokens/s", "success": "success rate",
        "input_tokens_per_s": "prompt tokens/s", "sent": "requests sent", "refused": "429s by kvway",
        "ttft_p50": "TTFT p50 s", "ttft_p90": "TTFT p90 s",
        "itl_p50": "ITL p50 s", "itl_p90": "ITL p90 s", "worker_ttft_p50": "TTFT p50 s at the workers",
        "worker_ttft_p90": "TTFT p90 s at the workers", "cached_share": "prompt tokens not computed",
        "late_ms": "steps late, ms"}
# Columns of the page.
PAGE = ("requests", "output_tokens_per_s", "success", "refused", "ttft_p50", "ttft_p90", "itl_p50", "itl_p90")


def fleet_of(router, tiers, kv_tokens):
    """Returns the publication's fleet: two servers with 20 GB of L1 each."""
    strategy, config = ROUTERS[router]
    fleet = Fleet(2, "llama-70b-8xh100", kv_tokens, l1_bytes=20 * GB, strategy=strategy, config=config)
    if tiers == "l1+l2":
        fleet.l2, fleet.l2_bytes_per_s = "kvtierd", 10 * GB
    return fleet


def workload_of(duration):
    """Returns the printed options, with this duration."""
    whole = int(duration) if duration == int(duration) else duration
    return Workload("multi-round-chat", SESSIONS, {**OPTIONS, "mrc-duration": whole}, as_printed=True)


def medians(runs):
    """Returns {figure: median} of several runs."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def below(kvway, roundrobin):
    """Returns the figures of NEVER_BELOW in which kvway is worse than round robin."""
    return [name for name in NEVER_BELOW if kvway[name] < roundrobin[name] * (1 - NOISE)]


def run_scene(options, client, tiers, kv_tokens):
    """Runs one scene; returns {router: [figures of each round]}."""
    runs = {router: [] for router in ROUTERS}
    for turn in range(options.rounds):
        for router in list(ROUTERS) if turn % 2 == 0 else reversed(ROUTERS):
            figures = run_arm(fleet_of(router, tiers, kv_tokens), workload_of(options.duration), options, client)
            runs[router].append(figures)
            say(f"tables: {NAME}: {client.name}, {tiers}, {kv_tokens:,} KV tokens, round {turn + 1}, {router}: "
                f"{figures['requests']} served, {figures['output_tokens_per_s']:.0f} tokens/s, TTFT p50 "
                f"{figures['ttft_p50']:.2f} s")
    return runs


def published(tiers):
    """Returns {figure: value} of the publication's column."""
    return {name: pair[TIERS.index(tiers)] for name, pair in l1_against_l2().published.items()}


def show(options, client, tiers, kv_tokens, runs):
    """Prints published figures, kvway's and round robin's of one scene side by side; returns those in which kvway is worse."""
    said, (kvway, other) = published(tiers), map(medians, runs.values())
    rows = []
    for name, words in ROWS.items():
        if name not in kvway:
            continue
        ratio = kvway[name] / other[name] if other[name] else None
        rows.append([words, said.get(name, "-"), kvway[name], other[name], "-" if ratio is None else ratio])
        emit("tables", name, kvway[name], "1", peer="roundrobin", ratio=ratio, peer_value=other[name],
             published=said.get(name), table=NAME, client=client.name, tiers=tiers, kv_tokens=kv_tokens,
             rounds=options.rounds, duration=options.duration, simulated=True, speed=options.speed)
    table(f"{NAME}: {client.name}, {tiers}, {kv_tokens:,} KV tokens a server, {options.duration:g} s, "
          f"{options.rounds} round(s), at the client, simulated, speed {options.speed:g}",
          ["", "published", "kvway", "round robin", "kvway / round robin"], rows)
    worse = below(kvway, other)
    say(f"   kvway is {'BELOW round robin in ' + ', '.join(ROWS[name] for name in worse) if worse else 'never below'}")
    return worse


def page_row(client, tiers, kv_tokens, runs):
    """Returns a row of bench/tables/README.md: kvway / round robin."""
    kvway, other = map(medians, runs.values())
    cells = [f"{cell(kvway[name], 3)} / {cell(other[name], 3)}" for name in PAGE]
    return f"| {kv_tokens:,}, {tiers}, {client.name} | {' | '.join(cells)} |"


def clients(options):
    """Returns the client programs."""
    return [Kvbench(options), *([Stock(options)] if options.peer == "lmcache" else [])]


def intro(options):
    """Prints what is published, and what is assumed."""
    words = " ".join(f"--{name} {value}" for name, value in workload_of(options.duration).options.items())
    say(f"\n== The printed command, and round robin against it  [simulated]\n   published by {l1_against_l2().source}")
    say(f"   lmcache bench engine --engine-url URL --workload multi-round-chat {words} --json --no-interactive")
    for line in ("two servers of Llama 3.1 70B (kvsim --profile llama-70b-8xh100), L1 of 20 GB each; its router went by "
                 "session, which the command does not name",
                 "assumed: the GPUs' KV cache of a server; with L2, 10 GB/s to each server and room for everything",
                 "a session has 10,000 tokens here, for kvsim cuts the words of the command otherwise than the model; "
                 "12,000 there",
                 "kvway: defaults. round robin: routing.strategy: roundrobin, admission.enabled: false"):
        say(f"   {line}")
    if options.speed != 1:
        say(f"   speed {options.speed:g}: kvway's time limits are divided by it, constants of its admission that no key "
            "names are not, and each real millisecond counts as so many")
    if options.duration != OPTIONS["mrc-duration"]:
        say(f"   {options.duration:g} s in place of 180: requests served are not comparable with what is published")


def bench_printed(options):
    """Runs all scenes."""
    options.speed = options.speed or 1.0
    options.duration = options.duration or float(OPTIONS["mrc-duration"])
    for name in options.tiers or TIERS:
        if name not in TIERS:
            raise BenchError(f"--tiers {name}: there are {', '.join(TIERS)}")
    intro(options)
    found, page = [], []
    for client in clients(options):
        for tiers in options.tiers or TIERS:
            for kv_tokens in options.kv_tokens or KV_TOKENS:
                runs = run_scene(options, client, tiers, kv_tokens)
                worse = show(options, client, tiers, kv_tokens, runs)
                page.append(page_row(client, tiers, kv_tokens, runs))
                found += [f"{client.name}, {tiers}, {kv_tokens:,}: {ROWS[name]}" for name in worse]
    say("\n" + "\n".join(f"   {row}" for row in page))
    say(f"\n   {NAME}: kvway is below round robin in {len(found)} figure(s){': ' if found else ''}{'; '.join(found)}")
