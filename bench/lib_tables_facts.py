"""What vendors have published of tiered KV caches and routing, and what we take for granted to repeat it.

Each table has two arms, `base` and `ours`, that differ in nothing but what the published comparison
says. Facts are published; assumptions are ours, for what was not; sweeps vary one assumption at a time
around the middle. Nothing here is fitted: values of a sweep are round numbers around what can be computed
from data sheets, as many as a run of less than twenty minutes has time for.
"""

from dataclasses import dataclass, field

GB = 10**9


@dataclass
class Fleet:
    """What serves: simulated workers and the router in front of them."""

    workers: int
    profile: str  # kvsim --list-profiles
    kv_tokens: int  # what the GPUs of one worker hold
    l1_bytes: int = 0  # 0: no tiers at all
    nvme_bytes: int = 0
    l2: str = ""  # "", "redis" or "kvtierd"
    l2_bytes_per_s: float = 0  # 0: kvsim's own model of it
    prefill_rate: float = 0  # tokens/s; 0: the profile's
    strategy: str = "session"


@dataclass
class Workload:
    """What is asked: a workload of `lmcache bench engine` and its options."""

    name: str
    count: int  # sessions or documents
    options: dict


@dataclass
class Sweep:
    """One assumption and what else it may be, in both arms alike."""

    name: str
    unit: str
    values: list
    apply: object  # (Fleet, Workload, value) -> None, called for both arms
    middle: float


@dataclass
class Table:
    name: str
    title: str
    source: str
    published: dict  # figure: (base, ours), where both are
    ratios: dict  # figure: ours / base
    facts: list
    assumptions: list
    base: Fleet
    ours: Fleet
    workload: Workload
    sweeps: list = field(default_factory=list)
    most_speed: float = 50  # at which one machine keeps up with so many workers


def set_kv(fleet, _, value):
    fleet.kv_tokens = int(value)


def set_prefill(fleet, _, value):
    fleet.prefill_rate = value


def set_l2(fleet, _, value):
    fleet.l2_bytes_per_s = value * GB


def set_qps(_, workload, value):
    workload.options["mrc-qps"] = value


def set_inflight(_, workload, value):
    workload.options["ldqa-num-inflight-requests"] = int(value)


def ratios_of(published):
    return {name: ours / base for name, (base, ours) in published.items()}


def l1_against_l2():
    published = {"ttft_p50": (4.506, 5.030), "ttft_p90": (8.253, 6.833), "itl_p50": (0.0634, 0.0380),
                 "itl_p90": (0.1649, 0.1168), "output_tokens_per_s": (844, 1071), "requests": (1016, 1200)}
    fleet = {"workers": 2, "profile": "llama-70b-8xh100", "kv_tokens": 200_000, "l1_bytes": 20 * GB}
    return Table(
        "l1-l2", "L1 alone against L1 + L2: 100 sessions of 12K tokens, QPS 8, Llama 3.1 70B on two servers",
        "AWS, \"LMCache with SageMaker HyperPod managed tiered storage\"", published, ratios_of(published),
        ["Llama-3.1-70B-Instruct, TP 8, 2 servers of 8 H100", "L1 of 20 GB a server", "L2 of 100 GiB a node",
         "session routing", "multi-round-chat: 100 sessions, 2,000 + 10,000 tokens, 50 asked, 200 answered",
         "8 requests a second for 180 s"],
        ["GPU KV of 200,000 tokens a server: 0.9 of 640 GB would hold 1.3 million and nothing would ever be "
         "evicted, but the text says that it was",
         "prefill of 22,600 tokens/s, by the data sheet at 40 % utilisation; \"17+ seconds\" for 12K tokens "
         "would be 700",
         "L2 gives 10 GB/s to each server", "the L2 holds all sessions (100 x 12K x 327,680 bytes is 393 GB; "
         "two nodes have 215 GB: what does not fit is evicted by the daemon's own policy, here nothing)"],
        Fleet(**fleet), Fleet(**fleet, l2="kvtierd", l2_bytes_per_s=10 * GB),
        Workload("multi-round-chat", 100, {
            "kv-cache-volume": 400, "mrc-shared-prompt-length": 2000,
            "mrc-chat-history-length": 10000, "mrc-user-input-length": 50, "mrc-output-length": 200,
            "mrc-qps": 8.0, "mrc-duration": 180}),
        [Sweep("GPU KV a server", "tokens", [50_000, 100_000, 400_000, 1_300_000], set_kv, 200_000),
         Sweep("prefill rate", "tokens/s", [5000, 10_000, 40_000], set_prefill, 22_600),
         Sweep("L2 bandwidth", "GB/s", [1, 3, 40], set_l2, 10),
         Sweep("arrivals", "requests/s", [4, 6, 10], set_qps, 8)])


def contexts(tokens, sessions, published, qps, prefills, values):
    """sessions: no multiple of the replicas, or round robin would keep each session where it is. prefills, values:
    what is swept of prefill rates and arrivals."""
    fleet = {"workers": 7, "profile": "llama-70b-8xh100", "kv_tokens": 400_000}
    return Table(
        f"context-{tokens // 1024}k",
        f"{tokens // 1024}K contexts on 7 replicas: routing and tiers against round robin without tiers",
        "AWS, \"Managed Tiered KV Cache and Intelligent Routing for SageMaker HyperPod\"", {}, published,
        ["Llama-3.1-70B-Instruct on 7 replicas of 8 GPUs", f"{tokens} tokens of context", "steady load",
         "gains only, in per cent; no absolute figure, no rate, no number of sessions"],
        [f"multi-round chat of {sessions} sessions with that much history, of it 1,000 shared; 50 tokens "
         "asked, 200 answered", f"{qps:g} requests a second", "GPU KV of 400,000 tokens a replica",
         "prefill of 22,600 tokens/s, by the data sheet at 40 % utilisation", "L1 of 200 GB a replica, L2 of 10 GB/s that holds everything"],
        Fleet(**fleet, strategy="roundrobin"),
        Fleet(**fleet, strategy="kvaware", l1_bytes=200 * GB, l2="kvtierd", l2_bytes_per_s=10 * GB),
        Workload("multi-round-chat", sessions, {
            "kv-cache-volume": sessions, "mrc-shared-prompt-length": 1000,
            "mrc-chat-history-length": tokens - 1000, "mrc-user-input-length": 50, "mrc-output-length": 200,
            "mrc-qps": qps, "mrc-duration": 120}),
        [Sweep("GPU KV a replica", "tokens", [100_000, 1_300_000], set_kv, 400_000),
         Sweep("prefill rate", "tokens/s", prefills, set_prefill, 22_600),
         Sweep("L2 bandwidth", "GB/s", [2, 40], set_l2, 10),
         Sweep("arrivals", "requests/s", values, set_qps, qps)],
        most_speed=10)


def documents(tier, published):
    fleet = {"workers": 1, "profile": "qwen-8b-a100", "kv_tokens": 353_000}
    more = {"nvme_bytes": 400 * GB, "l1_bytes": 2 * GB} if tier == "nvme" else {"l1_bytes": 100 * GB}
    return Table(
        f"documents-{tier}",
        f"46 documents of 10K tokens, {'CPU memory' if tier == 'cpu' else 'NVMe'} against no offloading",
        "LMI documentation, \"LMCache performance benefits\"", published, ratios_of(published),
        ["an 8B model (Qwen) on a p4de.24xlarge (8 A100 of 80 GB, 1.1 TB of memory, NVMe)",
         "46 documents of 10,000 tokens, 460,000 tokens in all", "4 requests at once"],
        ["one GPU with KV of 353,000 tokens by its data sheet: eight would hold all documents, and nothing "
         "could be gained",
         "each document is asked about twice, in an order that repeats (tile)", "128 tokens answered",
         "an A100's prefill by its data sheet at 40 % utilisation"],
        Fleet(**fleet), Fleet(**fleet, **more),
        Workload("long-doc-qa", 46, {
            "kv-cache-volume": 46, "ldqa-document-length": 10000,
            "ldqa-query-per-document": 2, "ldqa-shuffle-policy": "tile", "ldqa-num-inflight-requests": 4,
            "ldqa-max-output-length": 128}),
        [Sweep("GPU KV", "tokens", [100_000, 600_000], set_kv, 353_000),
         Sweep("prefill rate", "tokens/s", [3000, 15000], set_prefill, 7600),
         Sweep("requests at once", "", [1, 16], set_inflight, 4)])


def tables():
    """All, in the order in which they are run."""
    return [
        l1_against_l2(),
        contexts(8 * 1024, 151, {"ttft_p50": 0.28, "ttft_p90": 0.60, "output_tokens_per_s": 1.24}, 14.0, [5000, 10_000], [7, 28]),
        contexts(64 * 1024, 61, {"ttft_p50": 0.06, "ttft_p90": 0.65, "output_tokens_per_s": 1.38}, 2.0, [10_000, 40_000], [1, 4]),
        documents("cpu", {"ttft_mean": (1.161, 0.438), "elapsed": (52.978, 24.274)}),
        documents("nvme", {"ttft_mean": (1.161, 0.731), "elapsed": (52.978, 52.978 / 1.84)}),
    ]
