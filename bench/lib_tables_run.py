"""One run of a simulated fleet: workers with real tiers, the shared tier, kvway and a client, all gone at its end."""

import contextlib
import os

from lib_peers import start_kvway
from lib_procs import BenchError, Workshop, wait_ready
from lib_report import say
from lib_sim_speed import limits, rates
from lib_tables_client import Kvbench, ask, cost, figures_of, refused, worker_figures
from lib_tables_daemon import kvtierd, redis
from lib_trace import EVENTS, LATE_MS, sim_stats, stats_of

TARGETS = ["bench/sim/kvsim", "bench/load/kvbench", "cache/daemon/kvtierd"]
SHRINK = 8192  # divisor of stored bytes; a chunk counts and takes time as one of full size
CHUNK = 256  # tokens
SPARE = 1.3  # factor for the shared tier's room: for replaced objects, and for objects that are read in
TEMPLATE = 20  # tokens of the chat template in each round of a conversation
# kvsim cuts ASCII text every four characters; the filler words of these workloads have five or three,
# the space included. Lengths are stretched so that prompts have the tokens that are asked for.
STRETCH = {"mrc-shared-prompt-length": 4 / 5, "mrc-chat-history-length": 4 / 3,
           "mrc-user-input-length": 4 / 5, "ldqa-document-length": 4 / 3}

LENGTHS = ("mrc-shared-prompt-length", "mrc-chat-history-length", "ldqa-document-length")


def sim_arguments(fleet, ports, options, shop, l2):
    """Returns kvsim's command line for a fleet."""
    args = [os.path.join(options.build, "bench/sim/kvsim"), "--workers", str(fleet.workers), "--port",
            str(ports[0]), "--profile", fleet.profile, "--kv-tokens", str(fleet.kv_tokens), "--speed",
            f"{options.speed:g}"]
    if fleet.prefill_rate:
        args += ["--prefill-rate", f"{fleet.prefill_rate:g}"]
    if fleet.l1_bytes:
        args += ["--l1", str(fleet.l1_bytes), "--shrink", str(SHRINK)]
    if fleet.nvme_bytes:
        args += ["--nvme", f"{shop.path('nvme')}:{fleet.nvme_bytes}"]
    if l2:
        args += ["--l2", l2.url]
        if l2.segment:
            args += ["--l2-segment", l2.segment]
    if fleet.strategy == "kvaware":
        args += ["--kv-events-config", EVENTS]
    for kind, there, rate in (("gpu", fleet.l1_bytes, fleet.gpu_bytes_per_s),
                              ("nvme", fleet.nvme_bytes, fleet.nvme_bytes_per_s), ("l2", l2, fleet.l2_bytes_per_s)):
        if there and rate:
            args += ["--link", f"{kind}={rate:g}"]
    return args


def chunks_of(workload):
    """Returns how many chunks a shared tier must hold: those of all conversations at their ends, and a share more."""
    said = workload.options
    rounds = said["mrc-qps"] * said["mrc-duration"] / workload.count + 2
    tokens = (said["mrc-shared-prompt-length"] + said["mrc-chat-history-length"]
              + rounds * (said["mrc-user-input-length"] + said["mrc-output-length"] + TEMPLATE))
    return int(workload.count * (int(tokens / CHUNK) + 1) * SPARE)


def shared_tier(shop, fleet, workload, options):
    """The shared tier as a context; its value is None where there is none."""
    if fleet.l2 == "kvtierd":
        return kvtierd(shop, options, chunks_of(workload))
    if fleet.l2 == "redis":
        return redis(shop)
    return contextlib.nullcontext()


def asked_of(workload, port):
    """Returns the client's options."""
    if workload.as_printed:
        return {"engine-url": f"http://127.0.0.1:{port}", "workload": workload.name, **workload.options,
                "json": True, "no-interactive": True}
    said = {name: round(value * STRETCH[name]) if name in STRETCH else value
            for name, value in workload.options.items()}
    # The client derives the number of documents: volume divided by the length of one.
    length = sum(said.get(name, 0) for name in LENGTHS)
    said["tokens-per-gb-kvcache"] = -(-workload.count * length // said["kv-cache-volume"])
    return {"workload": workload.name, "engine-url": f"http://127.0.0.1:{port}", "ignore-eos": True,
            "session-header": "x-user-id", **said}


def check_late(fleet, ports, options):
    """Returns how late steps ended, in simulated ms; prints a line where the machine was too busy for this speed."""
    late = sim_stats(ports)["late_mean_ms"] * options.speed
    if late > LATE_MS:
        say(f"tables: {fleet.strategy}, {fleet.workers} workers: steps ended {late:.0f} simulated ms late: the "
            "machine is too busy for this speed")
    return late


def run_arm(fleet, workload, options, client=None):
    """Makes one run; returns its figures. client: kvbench, or another of lib_tables_client."""
    with Workshop() as shop, shared_tier(shop, fleet, workload, options) as l2:
        ports = shop.ports(fleet.workers + 2)
        sim = shop.start(sim_arguments(fleet, ports, options, shop, l2), log="kvsim.out")
        try:
            wait_ready(f"http://127.0.0.1:{ports[fleet.workers - 1]}/health", sim, 60)
        except BenchError as error:
            raise BenchError(f"kvsim: {error}\n{shop.log_tail('kvsim.out')}") from error
        proxy = start_kvway(shop, None, ports[fleet.workers:], ports[:fleet.workers], fleet.strategy,
                            options.build, routing=rates(options.speed), extra=limits(options.speed, fleet.config))
        client = client or Kvbench(options)
        figures = figures_of(ask(client, asked_of(workload, proxy.port), shop.folder), client)
        late = check_late(fleet, ports[:fleet.workers], options)
        if l2:
            l2.check()
        loaded = sum(stats_of(port)["tiers"]["loaded_l2"] for port in ports[:fleet.workers]) if l2 else 0
        return {**figures, **worker_figures(ports[:fleet.workers]), "refused": refused(ports[-1]),
                "cost": cost(figures, fleet.workers), "late_ms": late, "loaded_l2": loaded}
