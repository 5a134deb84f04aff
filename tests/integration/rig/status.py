"""What kvway says of itself: /status, `kvway top --once` and `kvway explain`; and what /status must equal in /metrics."""

import json
import subprocess
from collections import Counter

from rig.client import ask
from rig.router import PROGRAM
from rig.wait import until


def status(router, headers=()):
    answer = ask(router.admin_port, "GET", "/status", headers)
    assert answer.status == 200, answer
    return answer.json()


def command(router, *words, body=None, **options):
    argv = [PROGRAM, *words, "--admin", f"127.0.0.1:{router.admin_port}"]
    text = None if body is None else json.dumps(body)
    return subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, **options)


def wait_problem(router, code, seconds=30):
    """The first problem with this code."""
    found = lambda: [p for p in status(router)["problems"] if p["code"] == code]  # noqa: E731
    return until(found, seconds, f"the problem {code}")[0]


def told(router, code, body, seconds=30):
    """The problem, which `kvway top` and `kvway explain` must print in the same words; and what both print."""
    problem = wait_problem(router, code, seconds)
    shown = []

    def both():
        top, explained = command(router, "top", "--once"), command(router, "explain", body=body)
        shown[:] = [" ".join(out.split()) for out in (top.stdout, explained.stdout + explained.stderr)]
        same = [p for p in status(router)["problems"] if p["code"] == code]
        # Numbers in a sentence go on while it is read, so that cause and remedy are compared.
        return same and all(same[0]["why"] in text and same[0]["do"] in text for text in shown)

    until(both, 30, f"{code} in both: {problem} {shown}")
    return problem, *shown


TALLIES = {
    "prompt_tokens": "kvway_prompt_tokens_total",
    "cached_tokens": "kvway_cached_tokens_total",
    "completion_tokens": "kvway_completion_tokens_total",
    "predicted_prompt_tokens": "kvway_predicted_prompt_tokens_total",
    "predicted_cached_tokens": "kvway_predicted_cached_tokens_total",
    "refused_service_level": "kvway_refused_service_level_total",
    "refused_deadline": "kvway_refused_deadline_total",
    "refused_queue_full": "kvway_refused_queue_full_total",
    "refused_rate": "kvway_rate_limited_total",
    "refused_key": "kvway_auth_refused_total",
    "refused_body_memory": "kvway_body_memory_refused_total",
    "refused_connections": "kvway_connections_refused_total",
    "engine_full": "kvway_full_answers_total",
    "retries": "kvway_retries_total",
    "out_of_descriptors": "kvway_out_of_descriptors_total",
}
KEPT = {"kept": "promises_kept", "late": "promises_late", "slow": "promises_slow", "failed": "promises_broken",
        "refused": "promises_broken"}  # fmt: skip
WORKERS = {
    "running": "kvway_worker_inflight",
    "prefilling": "vllm:num_prefill_requests",
    "decoding": "vllm:num_decoding_requests",
    "kv_used": "kvway_worker_kv_used_ratio",
    "prefill_tokens_per_second": "kvway_worker_observed_prefill_tokens_per_second",
}


def fate(labels):
    """Under which name of `totals` a sample of kvway_requests_total counts; None: kvway's own pages."""
    if labels["route"] == "other" and labels["worker"] == "none":
        return None
    if labels["end"] == "client_gone":
        return "left"
    if labels["end"] in ("upstream_lost", "timeout", "shutdown") or labels["status"].startswith("5"):
        return "failed"
    if labels["status"] == "429":
        return "refused"
    return "client_error" if labels["status"].startswith("4") else "ok"


def totals(samples):
    """What `totals` of /status must have by these samples of /metrics."""
    sums = Counter({name: 0 for name in ("ok", "client_error", "refused", "failed", "left", *TALLIES, *KEPT.values())})
    names = {metric: name for name, metric in TALLIES.items()}
    for (metric, labels), value in samples.items():
        labels = dict(labels)
        if metric == "kvway_requests_total" and fate(labels):
            sums[fate(labels)] += value
        elif metric == "kvway_service_level_total" and labels["result"] in KEPT:
            sums[KEPT[labels["result"]]] += value
        elif metric in names:
            sums[names[metric]] += value
    sums["prefilled_elsewhere_tokens"] = samples.get(
        ("kvway_pd_prefill_tokens_total", frozenset([("kind", "prompt")])), 0
    )
    return dict(sums)


def of_worker(samples, url):
    """What a worker of /status must have; 0 also for what is not known."""
    found = {}
    for name, metric in WORKERS.items():
        label = "server" if metric.startswith("vllm:") else "worker"
        value = samples.get((metric, frozenset([(label, url)])))
        found[name] = 0 if value is None or value == -1 else value  # not known
    return found
