"""What vendors have published of tiered KV caches and routing, and what we take for granted to repeat it.

Each table has two arms, `base` and `ours`, that differ in nothing but what the published comparison
says. Facts are published; assumptions are ours, for what was not; sweeps vary one assumption at a time
around the middle. Nothing here is fitted: values of a sweep are round numbers around what can be computed
from data sheets, as many as a run of less than twenty minutes has time for.
"""

from dataclasses import dataclass, field, replace

GB = 10**9


@dataclass
class Fleet:
    """The servers: simulated workers and the router in front of them."""

    workers: int
    profile: str  # a name of kvsim --list-profiles
    kv_tokens: int  # tokens that the KV cache on one worker's GPUs holds
    l1_bytes: int = 0  # 0: no tiers at all
    nvme_bytes: int = 0
    l2: str = ""  # "", "redis" or "kvtierd"
    gpu_bytes_per_s: float = 0  # bandwidth from L1 to the GPU; 0, here and below: kvsim's own model
    nvme_bytes_per_s: float = 0
    l2_bytes_per_s: float = 0
    prefill_rate: float = 0  # tokens/s; 0: the profile's
    strategy: str = "session"
    config: dict = field(default_factory=dict)  # {key: value} of kvway's configuration; other keys have their defaults


@dataclass
class Workload:
    """The requests: a workload of `lmcache bench engine` and its options."""

    name: str
    count: int  # sessions or documents
    options: dict
    as_printed: bool = False  # True: the client gets these options and no others


@dataclass
class Sweep:
    """One assumption and the other values that it may have, the same in both arms."""

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
    published: dict  # {figure: (base, ours)} where both are published
    ratios: dict  # {figure: ours / base}
    facts: list
    assumptions: list
    base: Fleet
    ours: Fleet
    workload: Workload
    sweeps: list = field(default_factory=list)
    others: dict = field(default_factory=dict)  # {where: {name: arm}}: the first arm is compared with the rest
    claim: str = ""  # the published sentence on the first arm against the rest
    most_speed: float = 50  # highest speed at which one machine keeps up with so many workers


def set_kv(fleet, _, value):
    fleet.kv_tokens = int(value)


def set_prefill(fleet, _, value):
    fleet.prefill_rate = value


def set_l2(fleet, _, value):
    fleet.l2_bytes_per_s = value * GB


def set_nvme(fleet, _, value):
    fleet.nvme_bytes_per_s = value * GB


def set_length(_, workload, value):
    """Makes documents longer and fewer, or shorter and more, with the same number of tokens in all."""
    workload.count = round(workload.count * workload.options["ldqa-document-length"] / value)
    workload.options["ldqa-document-length"] = int(value)


def set_qps(_, workload, value):
    workload.options["mrc-qps"] = value


def set_inflight(_, workload, value):
    workload.options["ldqa-num-inflight-requests"] = int(value)


def ratios_of(published):
    return {name: ours / base for name, (base, ours) in published.items()}


def l1_against_l2():
    published = {"ttft_p50": (4.506, 5.030), "ttft_p90": (8.253, 6.833), "itl_p50": (0.0634, 0.0380),
                 "itl_p90": (0.1649, 0.1168), "output_tokens_per_s": (844, 1071), "requests": (1016, 1200),
                 "success": (1.0, 1.0)}
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


def shared_tiers(fleet, l1_gb):
    """Returns {name: arm}: one with kvtierd, and one with Redis in its place."""
    kinds = {"kvtierd, 10 GB/s": ("kvtierd", 10), "Redis, 2.94 GB/s": ("redis", 2.94), "Redis, 0.84 GB/s": ("redis", 0.84)}
    return {name: Fleet(**fleet, strategy="kvaware", l1_bytes=l1_gb * GB, l2=l2, l2_bytes_per_s=rate * GB)
            for name, (l2, rate) in kinds.items()}


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
         "prefill of 22,600 tokens/s, by the data sheet at 40 % utilisation",
         "L1 of 200 GB a replica, L2 of 10 GB/s that holds everything",
         "cost: seconds of a replica for 1,000 output tokens; the price of a second is not in the text and cancels "
         "in the gain",
         "Redis in place of the tiered storage gives each replica 2.94 GB/s (25 Gbit/s), or 0.84 GB/s: what one "
         "server has (5.9 GB/s, LMCache's documentation) for seven that read at once"],
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
        {"the middle point": shared_tiers(fleet, 200),
         "GPU KV of 100,000 tokens and L1 of 20 GB a replica, so that the shared tier is read":
         shared_tiers({**fleet, "kv_tokens": 100_000}, 20)},
        "\"AWS-managed tiered storage consistently outperformed Redis-based L2 caching\" in latency and throughput; "
        "no figures in the text",
        most_speed=10)


def documents(tier, published):
    fleet = {"workers": 1, "profile": "qwen-8b-a100", "kv_tokens": 353_000, "gpu_bytes_per_s": 25 * GB}
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
         "an A100's prefill by its data sheet at 40 % utilisation, PCIe 4.0 x16 (25 GB/s) to its memory",
         "one NVMe drive of PCIe 4.0 (6.9 GB/s)"],
        Fleet(**fleet), Fleet(**fleet, **more),
        Workload("long-doc-qa", 46, {
            "kv-cache-volume": 46, "ldqa-document-length": 10000,
            "ldqa-query-per-document": 2, "ldqa-shuffle-policy": "tile", "ldqa-num-inflight-requests": 4,
            "ldqa-max-output-length": 128}),
        [Sweep("GPU KV", "tokens", [100_000, 600_000], set_kv, 353_000),
         Sweep("prefill rate", "tokens/s", [3000, 15000], set_prefill, 7600),
         Sweep("requests at once", "", [1, 16], set_inflight, 4)])


def far_context(tier, model, fleet, more, total, gain, sweeps, assumptions):
    """A speedup of TTFT "at a token context length" far beyond what the models take in one prompt."""
    count = total // 10_000
    return Table(
        f"{model.split('-')[1].lower()}-{total // 10**6}m-{tier}", f"{total // 10**6}M tokens on {model}: "
        f"{'CPU memory' if tier == 'cpu' else 'NVMe with O_DIRECT'} against no offloading",
        "LMI documentation, \"LMCache performance benefits\"", {}, {"ttft_mean": 1 / gain},
        [f"up to {gain}x speedup in TTFT with {model} at {total // 10**6}M token context length, "
         "no absolute figure"],
        [f"{count} documents of 10,000 tokens: the model takes 131,072 in one prompt, and the other benchmark of that "
         "page counts its tokens over all documents (46 x 10,000)",
         "each is asked about once, in the order in which all were read", "4 requests at once, 128 tokens answered",
         "which TTFT is not said: the mean", *assumptions],
        fleet, replace(fleet, **more),
        Workload("long-doc-qa", count, {
            "kv-cache-volume": 100, "ldqa-document-length": 10_000, "ldqa-query-per-document": 1,
            "ldqa-shuffle-policy": "tile", "ldqa-num-inflight-requests": 4, "ldqa-max-output-length": 128}),
        [*sweeps, Sweep("requests at once", "", [1, 16], set_inflight, 4),
         Sweep("document", "tokens", [5000, 40_000], set_length, 10_000)])


def far_contexts():
    small = Fleet(1, "qwen2.5-7b-a100", 929_000, gpu_bytes_per_s=25 * GB)
    large = Fleet(1, "qwen2.5-72b-4xa100", 404_000, gpu_bytes_per_s=100 * GB)
    return [
        far_context("cpu", "Qwen2.5-7B", small, {"l1_bytes": 200 * GB}, 2_000_000, 28,
                    [Sweep("prefill rate", "tokens/s", [4000, 16_000], set_prefill, 8220)],
                    ["one A100 with KV of 929,000 tokens by its data sheet", "prefill of 8,220 tokens/s, by the data "
                     "sheet at 40 % utilisation", "PCIe 4.0 x16 (25 GB/s) to its memory"]),
        far_context("nvme", "Qwen2.5-72B", large, {"l1_bytes": 20 * GB, "nvme_bytes": 500 * GB,
                                              "nvme_bytes_per_s": 6.9 * GB}, 1_000_000, 16,
                    [Sweep("NVMe bandwidth", "GB/s", [2, 13.8, 27.6], set_nvme, 6.9)],
                    ["four A100 with KV of 404,000 tokens by their data sheets: eight would hold all of it, and nothing "
                     "could be gained", "prefill of 3,440 tokens/s, by the data sheet at 40 % utilisation",
                     "PCIe 4.0 x16 to each GPU (100 GB/s), one NVMe drive of PCIe 4.0 (6.9 GB/s)", "of the "
                     "machine's eight drives two and four are swept"])]


def tables():
    """Returns all tables in the order in which they are run."""
    return [
        l1_against_l2(),
        contexts(8 * 1024, 151, {"ttft_p50": 0.28, "ttft_p90": 0.60, "output_tokens_per_s": 1.24, "cost": 0.79}, 14.0, [5000, 10_000], [7, 28]),
        contexts(64 * 1024, 61, {"ttft_p50": 0.06, "ttft_p90": 0.65, "output_tokens_per_s": 1.38, "cost": 0.72}, 2.0, [10_000, 40_000], [1, 4]),
        documents("cpu", {"ttft_mean": (1.161, 0.438), "elapsed": (52.978, 24.274)}),
        documents("nvme", {"ttft_mean": (1.161, 0.731), "elapsed": (52.978, 52.978 / 1.84)}),
        *far_contexts(),
    ]
