#!/usr/bin/env python3
"""dashboards.py [--check] - writes router.json and cache.json, the dashboards for Grafana.

What they show stands below as tables: a row of the dashboard is a title and its panels, a panel is a
title, a unit and its queries with the text of their legends. Panels whose source may not be there say so
in place of "No data". --check writes nothing and fails if a file is not what this script would write.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24


def panel(title, unit, *targets, text="", kind="timeseries", width=8, top=None):
    """targets: (query, legend) each. top: the axis ends there."""
    height = 4 if kind == "stat" else 8
    defaults = {"unit": unit, "min": 0, "custom": {}} if kind == "timeseries" else {"unit": unit}
    if kind == "timeseries":
        defaults["custom"] = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never"}
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    else:
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "none"}
    if top is not None:
        defaults["max"] = top
    return {
        "type": kind,
        "title": title,
        "description": text,
        "datasource": SOURCE,
        "gridPos": {"w": width, "h": height},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            for i, (expr, legend) in enumerate(targets)
        ],
    }


def stat(title, unit, expr, text=""):
    return panel(title, unit, (expr, ""), text=text, kind="stat", width=4)


def wanting(source, panels):
    """Panels that are empty without this source, and say so."""
    for one in panels:
        one["fieldConfig"]["defaults"]["noValue"] = f"No data: needs {source}"
    return panels


def placed(rows):
    """Panels of all rows with ids and places, from left to right and down."""
    panels = []
    y = 0
    for title, row in rows:
        grid = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        panels.append({"type": "row", "title": title, "collapsed": False, "gridPos": grid, "panels": []})
        y += 1
        x = height = 0
        for one in row:
            if x + one["gridPos"]["w"] > COLUMNS:
                x, y, height = 0, y + height, 0
            one["gridPos"] = {"x": x, "y": y, **one["gridPos"]}
            x += one["gridPos"]["w"]
            height = max(height, one["gridPos"]["h"])
            panels.append(one)
        y += height
    for number, one in enumerate(panels, 1):
        one["id"] = number
    return panels


def variable(name, label, query):
    """A choice among the values of a label."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def dashboard(uid, title, rows, *variables):
    source = {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "refresh": 1,
        "current": {},
    }
    return {
        "uid": uid,
        "title": title,
        "tags": ["kvway", "vllm"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [source, *variables]},
        "panels": placed(rows),
    }


# --- queries ------------------------------------------------------------------------------------


HERE_ONLY = 'instance=~"$instance"'
ENGINE = 'instance=~"$engine"'  # workers: their own /metrics


def rate(metric, *matchers, at=HERE_ONLY):
    return f"rate({metric}{{{', '.join((at, *matchers))}}}[$__rate_interval])"


def total(metric, *matchers, by="", at=HERE_ONLY):
    """Per second, summed up."""
    return f"sum{f' by ({by})' if by else ''} ({rate(metric, *matchers, at=at)})"


def named(expr, *labels):
    """With "none" where one of these labels is empty, which Prometheus takes for absent."""
    for label in labels:
        expr = f'label_replace({expr}, "{label}", "none", "{label}", "")'
    return expr


def now(metric, *matchers, by=""):
    """A gauge, summed up."""
    return f"sum{f' by ({by})' if by else ''} ({metric}{{{', '.join((HERE_ONLY, *matchers))}}})"


def worst(metric, *matchers, by="instance"):
    return f"max by ({by}) ({metric}{{{', '.join((HERE_ONLY, *matchers))}}})"


def quantiles(metric, *matchers, at=HERE_ONLY, of=(0.5, 0.95, 0.99)):
    """Targets for these quantiles of a histogram: the median, 95 % and 99 %."""
    buckets = total(f"{metric}_bucket", *matchers, by="le", at=at)
    return [(f"histogram_quantile({q}, {buckets})", f"{q:.0%}".replace("%", " %")) for q in of]


def engines(metric, *matchers, by="instance"):
    """Per second and worker."""
    return total(metric, *matchers, by=by, at=ENGINE)


def mean(histogram, *matchers, by=""):
    """Of what a histogram of the workers got."""
    return f"{engines(f'{histogram}_sum', *matchers, by=by)} / {engines(f'{histogram}_count', *matchers, by=by)}"


BY_ENGINE = "{{instance}}"
WORKER = 'worker=~"$worker"'
SERVER = 'server=~"$worker"'
MODEL = 'model=~"$model"'
SERVED = 'route!="other"'
BY_WORKER = "{{worker}}"

DCGM, VLLM = "NVIDIA's DCGM exporter", "the workers' /metrics"
PROFILING = "the profiling fields of DCGM's exporter"
DCGM_AND_VLLM = f"{DCGM} and {VLLM}"


def gpus(field):
    """A field of DCGM's for each GPU, averaged over time."""
    return f'max by (Hostname, gpu) (avg_over_time(DCGM_FI_{field}{{Hostname=~"$gpu_node"}}[$__rate_interval]))'


GPU_BUSY = f"{gpus('DEV_GPU_UTIL')} / 100"
ANSWERED = total("vllm:request_success_total", at=ENGINE)
# kvway has a metric of this name, too, without this label.
WORKERS_BUSY = f'sum (avg_over_time((vllm:num_requests_running{{{ENGINE}, model_name!=""}} > bool 0)[$__rate_interval:]))'

REQUESTS = total("kvway_requests_total", SERVED)
FAILURES = " or ".join(
    rate("kvway_requests_total", SERVED, which) for which in ('status=~"5.."', 'end=~"upstream_lost|timeout"')
)
FAILED = f"sum({FAILURES}) or vector(0)"
REFUSED = " + ".join(total(f"kvway_refused_{why}_total") for why in ("service_level", "deadline", "queue_full"))


def share(part):
    """Of all requests; 0 while there are none."""
    return f"({part}) / ({REQUESTS} > 0) or {REQUESTS}"


CACHED = f"{total('kvway_cached_tokens_total')} / {total('kvway_prompt_tokens_total')}"
PREDICTED = f"{total('kvway_predicted_cached_tokens_total')} / {total('kvway_predicted_prompt_tokens_total')}"

ROUTER = [
    ("Overview", [
        stat("Requests", "reqps", REQUESTS),
        stat("Failed", "percentunit", share(FAILED), "5xx, lost or timed out"),
        stat("First token, 95 %", "s", quantiles("kvway_time_to_first_token_seconds")[1][0]),
        stat("Prompt tokens from cache", "percentunit", CACHED, "As the workers report them."),
        stat("Usable workers", "none", now("kvway_workers", 'state=~"usable|unprobed"')),
        stat("Waiting at kvway", "none", now("kvway_waiting_requests")),
    ]),
    ("Traffic", [
        panel("Requests by route", "reqps", (total("kvway_requests_total", by="route"), "{{route}}")),
        panel("Requests by status", "reqps", (total("kvway_requests_total", SERVED, by="status"), "{{status}}"),
            text="0: no answer was sent."),
        panel("Requests by model", "reqps", (total("vllm:num_incoming_requests_total", MODEL, by="model"), "{{model}}")),
        panel("Prompt tokens by model", "short", (total("vllm:input_tokens_total", SERVER, MODEL, by="model"), "{{model}}")),
        panel("Generated tokens by model", "short", (total("vllm:output_tokens_total", SERVER, MODEL, by="model"), "{{model}}")),
        panel("Requests in progress", "none", (now("kvway_exchanges", by="instance"), "{{instance}}")),
    ]),
    ("Promises: time to first token and between tokens", [
        panel("Time to first token", "s", *quantiles("kvway_time_to_first_token_seconds"), text="Streams."),
        panel("Time between tokens", "s", *quantiles("kvway_inter_token_seconds"), text="Pieces of streams."),
        panel("Whole requests", "s", *quantiles("kvway_request_seconds")),
        panel("Time in kvway itself", "s", *quantiles("kvway_added_latency_seconds")),
        panel("Mean duration by worker", "s", (
            f"{total('vllm:request_latency_seconds_sum', SERVER, MODEL, by='server')}"
            f" / {total('vllm:request_latency_seconds_count', SERVER, MODEL, by='server')}", "{{server}}")),
        panel("Refused since late", "reqps", (total("kvway_refused_service_level_total"), "service level"),
            (total("kvway_refused_deadline_total"), "deadline")),
        panel("Predicted over promised", "percentunit",
            (worst("kvway_fleet_predicted_over_promised", MODEL, by="model, role, quantile"), "{{model}} {{role}} {{quantile}}"),
            text="Time to first token. Above 100 % answers will be late, and workers are missing."),
        panel("What first tokens will wait for", "s", (
            f"{total('kvway_predicted_seconds_total', MODEL, by='part')} / scalar({total('kvway_predicted_over_promised_count', MODEL)})",
            "{{part}}"), text="Mean of the predictions. More workers shorten wait and queue, not prefill."),
        panel("Promises", "reqps", (total("kvway_service_level_total", by="result"), "{{result}}"),
            text="Requests with a service level that have ended."),
    ]),
    ("Cache hits, predicted and actual", [
        panel("Prompt tokens from cache", "percentunit", (CACHED, "actual"), (PREDICTED, "predicted"), top=1,
            text="Actual: where workers report it (--enable-prompt-tokens-details)."),
        panel("Prediction error", "percentunit", (
            f"{total('kvway_cached_tokens_error_total')} / {total('kvway_cached_tokens_compared_total')}", "of prompt tokens")),
        panel("Prediction error by worker", "short",
            (total("kvway_worker_overpredicted_tokens_total", WORKER, by="worker"), "{{worker}} predicted, not there"),
            (total("kvway_worker_underpredicted_tokens_total", WORKER, by="worker"), "{{worker}} there, not predicted"),
            text="Tokens a second."),
        panel("Why there", "reqps", (total("kvway_decisions_total", by="reason"), "{{reason}}")),
        panel("Cached tokens by worker", "short", (total("kvway_worker_cached_tokens_total", WORKER, by="worker"), BY_WORKER)),
        panel("Prefix tree", "bytes", (now("kvway_tree_bytes", by="instance"), "{{instance}}"),
            (now("kvway_tree_bytes_limit", by="instance"), "{{instance}} limit")),
    ]),
    ("Load per worker", [
        panel("In flight", "none", (now("kvway_worker_inflight", WORKER, by="worker"), BY_WORKER)),
        panel("Predicted queue", "s", (worst("kvway_worker_queue_seconds", WORKER, by="worker"), BY_WORKER),
            text="Prefill ahead of a new request."),
        panel("Requests by worker", "reqps", (total("kvway_requests_total", WORKER, by="worker"), BY_WORKER)),
        panel("In prefill", "none", (now("vllm:num_prefill_requests", SERVER, by="server"), "{{server}}")),
        panel("In decoding", "none", (now("vllm:num_decoding_requests", SERVER, by="server"), "{{server}}")),
        panel("Prefill rate used for costs", "short",
            (worst("kvway_worker_prefill_tokens_per_second", WORKER, by="worker"), BY_WORKER), text="Tokens a second."),
    ]),
    ("Queue and refusals", [
        panel("Waiting requests", "none", (now("kvway_waiting_requests", by="instance"), "{{instance}}")),
        panel("Requests of others at workers", "none",
            (worst("kvway_worker_foreign_waiting", WORKER, by="worker"), "{{worker}} waiting"),
            (worst("kvway_worker_foreign_running", WORKER, by="worker"), "{{worker}} running"),
            text="Not sent by this kvway, by the workers' own metrics."),
        panel("Time waited", "s", *quantiles("kvway_wait_seconds")),
        panel("Waiting requests by reason, mean", "none", (total("kvway_wait_seconds_sum"), "room at a worker"),
            (total("kvway_kvaware_token_wait_seconds_sum"), "its tokens"), (total("kvway_wake_held_seconds_total"), "a worker of its model"),
            (total("kvway_pd_prefill_seconds_sum"), "prefill at another worker"), text="Seconds waited in a second."),
        panel("Share that had to wait", "percentunit", (f"{total('kvway_waited_total')} / {REQUESTS}", "waited")),
        panel("Refused with 429", "reqps", (total("kvway_refused_service_level_total"), "service level"),
            (total("kvway_refused_deadline_total"), "deadline"), (total("kvway_refused_queue_full_total"), "queue full")),
        panel("Share refused", "percentunit", (share(REFUSED), "refused")),
        panel("Refused for other reasons", "reqps", (total("kvway_body_memory_refused_total"), "body memory"),
            (total("kvway_connections_refused_total"), "connections"), (total("kvway_bad_requests_total"), "4xx by kvway itself")),
    ]),
    ("Errors", [
        panel("Failed requests", "reqps", (f"sum by (worker, status, end) ({FAILURES})", "{{worker}} {{status}} {{end}}"),
            text="Worker none: no worker was chosen."),
        panel("Errors by model", "reqps", (
            total("vllm:request_errors_total", MODEL, by="model, error_type"), "{{model}} {{error_type}}")),
        panel("Timeouts", "reqps", (total("kvway_timeouts_total", by="kind"), "{{kind}}")),
        panel("Repeated elsewhere", "reqps", (total("kvway_retries_total"), "retries"), (total("kvway_failovers_total"), "failovers"),
            (total("kvway_stale_retries_total"), "stale connections"), (total("kvway_retries_refused_total"), "beyond the budget")),
        panel("Bad answers by worker", "reqps", (total("kvway_worker_bad_answers_total", WORKER, by="worker"), BY_WORKER)),
        panel("Clients gone", "reqps", (total("kvway_client_gone_total"), "gone"), (total("kvway_internal_errors_total"), "bugs of kvway")),
    ]),
    ("Usage", [
        panel("Tokens by key", "short", (
            named(total("kvway_usage_tokens_total", by="key, kind"), "key"), "{{key}} {{kind}}"),
            text="cached is a part of prompt. Keys without a series of their own are other."),
        panel("Requests by key", "reqps", (
            named(total("kvway_usage_requests_total", by="key, result"), "key"), "{{key}} {{result}}")),
        panel("Tokens by tenant and model", "short", (
            named(total("kvway_usage_tokens_total", 'kind!="cached"', by="tenant, model"), "tenant", "model"), "{{tenant}} {{model}}")),
    ]),
    ("Prefill and decode on different workers", wanting("workers with a role", [
        panel("Plans", "reqps", (total("kvway_pd_plans_total", by="plan"), "{{plan}}"),
            text="split, or why not: here is one worker alone, which costs less."),
        panel("Prefills", "reqps", (total("kvway_pd_prefills_total", by="result"), "{{result}}")),
        panel("Decodes", "reqps", (total("kvway_pd_decodes_total", by="result"), "{{result}}"),
            text="transferred is what should be; all others were served whole or prefilled again."),
        panel("Prefill", "s", *quantiles("kvway_pd_prefill_seconds")),
        panel("Hand-over, by kvway alone", "s", *quantiles("kvway_pd_handover_seconds")),
        panel("Transfer", "s", *quantiles("kvway_pd_transfer_seconds"), text="Streams: up to the decoder's first token."),
        panel("Workers by role", "none", (now("kvway_workers_by_role", by="role"), "{{role}}")),
        panel("Predicted over promised, by role", "percentunit",
            (worst("kvway_fleet_predicted_over_promised", 'quantile="0.9"', by="role"), "{{role}}"),
            text="9 of 10 requests stay below; which of the two pools is short."),
    ])),
    ("Health", [
        panel("Workers by state", "none", (now("kvway_workers", by="state"), "{{state}}")),
        panel("Workers that cannot be chosen", "none", (f"1 - {worst('kvway_worker_usable', WORKER, by='worker')}", BY_WORKER), top=1),
        panel("Ejected or standing still", "none",
            (worst("kvway_worker_ejected", WORKER, by="worker"), "{{worker}} ejected"),
            (worst("kvway_worker_stall", WORKER, by="worker"), "{{worker}} stall")),
        panel("Wait for KV memory by worker", "s", (worst("kvway_worker_kv_wait_seconds", WORKER, by="worker"), BY_WORKER)),
        panel("Workers by source", "none", (worst("kvway_discovery_workers", by="instance, source"), "{{instance}} {{source}}")),
        panel("Configuration", "none", (worst("kvway_config_last_reload_successful"), "{{instance}} last reload successful"),
            (worst("kvway_config_keys_need_restart"), "{{instance}} keys that need a restart"),
            (worst("kvway_discovery_readable", by="instance, source"), "{{instance}} {{source}} readable")),
        panel("Oldest turn of an event loop", "s", (worst("kvway_loop_last_turn_age_seconds"), "{{instance}}")),
        panel("Descriptors in use", "percentunit", (
            "process_open_fds{" + HERE_ONLY + "} / process_max_fds and on (job, instance) kvway_build_info", "{{instance}}"), top=1),
        panel("Memory and CPU of kvway", "short", (
            "process_resident_memory_bytes{" + HERE_ONLY + "} / 1048576 and on (job, instance) kvway_build_info", "{{instance}} MiB"),
            (rate("process_cpu_seconds_total") + " * 100 and on (job, instance) kvway_build_info", "{{instance}} CPU %")),
        panel("Connections", "none", (now("kvway_client_connections"), "clients"),
            (now("kvway_upstream_busy_connections"), "workers, in use"), (now("kvway_upstream_idle_connections"), "workers, idle")),
    ]),
    ("Exact routing (kvaware)", [
        panel("Reported share of each cache", "none",
            (worst("kvway_worker_cache_coverage", WORKER, by="worker, reporter"), "{{worker}} {{reporter}}"),
            text="0: nothing, 1: a part, 2: all."),
        panel("Exact predictions", "reqps", (total("kvway_worker_exact_right_total", WORKER), "right"),
            (total("kvway_worker_exact_wrong_total", WORKER), "wrong by more than a block")),
        panel("Block index", "bytes", (now("kvway_kvaware_index_bytes", by="instance"), "{{instance}}"),
            (now("kvway_kvaware_index_bytes_limit", by="instance"), "{{instance}} limit")),
    ]),
    ("GPUs and time per request", [
        *wanting(DCGM, [
            panel("GPU use", "percentunit", (GPU_BUSY, "{{Hostname}} GPU {{gpu}}"), top=1,
                text="Share of the time in which the GPU computed anything."),
        ]),
        *wanting(PROFILING, [
            panel("What the GPUs do", "percentunit", (f"avg ({gpus('PROF_GR_ENGINE_ACTIVE')})", "anything"),
                (f"avg ({gpus('PROF_PIPE_TENSOR_ACTIVE')})", "tensor cores"), (f"avg ({gpus('PROF_DRAM_ACTIVE')})", "memory"), top=1,
                text="Mean of all: prefill is bound by the tensor cores, decoding by memory."),
        ]),
        *wanting(DCGM_AND_VLLM, [
            panel("GPU seconds per request", "s", (f"sum ({GPU_BUSY}) / {ANSWERED}", "busy"),
                (f"count ({GPU_BUSY}) / {ANSWERED}", "busy or idle"),
                text="Of the GPUs of $gpu_node, by the requests that the workers of $engine ended: choose those that belong together."),
            panel("GPU seconds per 1,000 generated tokens", "s",
                (f"sum ({GPU_BUSY}) / {total('vllm:generation_tokens_total', at=ENGINE)} * 1000", "busy"),
                (f"count ({GPU_BUSY}) / {total('vllm:generation_tokens_total', at=ENGINE)} * 1000", "busy or idle")),
        ]),
        *wanting(VLLM, [
            panel("Worker seconds per request", "s", (f"{WORKERS_BUSY} / {ANSWERED}", "busy"),
                text="A worker is busy while it has a request, by its own metrics alone: without DCGM, how long a request has one."),
            panel("Mean time of a request", "s", (mean("vllm:request_queue_time_seconds"), "waits in vLLM"),
                (mean("vllm:request_prefill_time_seconds"), "prefill"), (mean("vllm:request_decode_time_seconds"), "decoding")),
            panel("KV cache in use", "percentunit", (f"max by (instance) (vllm:kv_cache_usage_perc{{{ENGINE}}})", BY_ENGINE), top=1),
            panel("Tokens per engine step", "short", (mean("vllm:iteration_tokens_total", by="instance"), BY_ENGINE),
                text="Prefilled and generated: how full the batches are."),
            panel("Engine steps", "short", (engines("vllm:iteration_tokens_total_count"), BY_ENGINE), text="Steps a second."),
        ]),
    ]),
]  # fmt: skip

TIER = 'tier=~"$tier"'
PLACE = "{{instance}} {{tier}}"
LMCACHES = 'worker_id!=""'  # LMCache's own series have this label
OURS = 'worker_id=""'
KVTIER, KVTIERD = "kvtierd or libkvtier", "kvtierd"
KVTIER_ENGINE = "vLLM with kvtier's connector"
LMCACHE = "vLLM with LMCache, and PROMETHEUS_MULTIPROC_DIR"
CONNECTOR = "vLLM with LMCache (and PROMETHEUS_MULTIPROC_DIR) or kvtier"


def of_prompts(metric, *matchers):
    """Tokens a second of each worker. With LMCache each rank counts all of them."""
    return f"max by (instance) ({engines(metric, *matchers, by='instance, worker_id')})"


def lmcache_now(metric):
    return f"sum by (instance) ({metric}{{{ENGINE}, {LMCACHES}}})"


def by_tier(metric):
    return total(metric, TIER, by="instance, tier")


def tier_now(metric):
    return f"{metric}{{{HERE_ONLY}, {TIER}}}"


HITS = f"{total('kvtier_get_hit_chunks_total')} / {total('kvtier_get_chunks_total')}"

LOOKUP_HITS = f"{engines('lmcache:num_lookup_hits_total')} / {engines('lmcache:num_lookup_tokens_total')}"

CACHE = [
    ("Hits at the workers", [
        *wanting(VLLM, [
            panel("GPU prefix cache hit rate", "percentunit",
                (f"{engines('vllm:prefix_cache_hits_total')} / {engines('vllm:prefix_cache_queries_total')}", BY_ENGINE), top=1,
                text="vllm:prefix_cache_hits_total / vllm:prefix_cache_queries_total: prompt tokens that vLLM's own cache had."),
        ]),
        *wanting(CONNECTOR, [
            panel("Lookup hit rate", "percentunit", (f"{LOOKUP_HITS} and on (instance) vllm:prefix_cache_queries_total", BY_ENGINE), top=1,
                text="lmcache:num_lookup_hits_total / lmcache:num_lookup_tokens_total: of the tokens that LMCache, or kvtier, was asked for, those it found."),
            panel("Hit rate of requests", "percentunit", (mean("lmcache:request_cache_hit_rate"), "mean"),
                *quantiles("lmcache:request_cache_hit_rate", at=ENGINE, of=(0.1, 0.5, 0.9)), top=1,
                text="lmcache:request_cache_hit_rate: share of a request's prompt that was cached. 10 %: a tenth of the requests had less."),
            panel("vLLM hit tokens", "short", (of_prompts("lmcache:num_vllm_hit_tokens_total"), BY_ENGINE),
                text="lmcache:num_vllm_hit_tokens_total: tokens that vLLM's own cache had when LMCache, or kvtier, was asked. "
                "HyperPod's page reads it as tokens served from LMCache; these are \"Tokens loaded into vLLM\"."),
        ]),
        *wanting(VLLM, [
            panel("Tokens loaded into vLLM", "short", (engines("vllm:external_prefix_cache_hits_total"), BY_ENGINE),
                text="vllm:external_prefix_cache_hits_total: tokens that vLLM's own cache had not, and LMCache or kvtier had."),
            panel("Prompt tokens by source", "short", (engines("vllm:prompt_tokens_by_source_total", by="source"), "{{source}}")),
        ]),
    ]),
    ("Workers with LMCache", wanting(LMCACHE, [
        panel("Tokens stored and asked for", "short", (of_prompts("lmcache:num_stored_tokens_total", LMCACHES), "{{instance}} stored"),
            (of_prompts("lmcache:num_requested_tokens_total", LMCACHES), "{{instance}} asked for"),
            (of_prompts("lmcache:num_hit_tokens_total", LMCACHES), "{{instance}} handed out")),
        panel("Occupied", "bytes", (lmcache_now("lmcache:local_cache_usage"), "{{instance}} memory"),
            (lmcache_now("lmcache:local_storage_usage"), "{{instance}} disk"), (lmcache_now("lmcache:remote_cache_usage"), "{{instance}} remote")),
        panel("Remote", "Bps", (engines("lmcache:num_remote_read_bytes_total", LMCACHES), "{{instance}} read"),
            (engines("lmcache:num_remote_write_bytes_total", LMCACHES), "{{instance}} written")),
        panel("Retrieve", "s", *quantiles("lmcache:time_to_retrieve", LMCACHES, at=ENGINE)),
        panel("Store", "s", *quantiles("lmcache:time_to_store", LMCACHES, at=ENGINE)),
        panel("Lookup", "s", *quantiles("lmcache:time_to_lookup", LMCACHES, at=ENGINE)),
        panel("Evictions", "short", (engines("lmcache:local_cpu_evict_keys_count_total", LMCACHES), BY_ENGINE), text="Chunks a second, of memory."),
        panel("Lookups that found nothing", "percentunit", (
            f"{engines('lmcache:lookup_0_hit_requests_total', LMCACHES)} / {engines('lmcache:num_lookup_requests_total', LMCACHES)}", BY_ENGINE), top=1),
        panel("Trouble", "short", (engines("lmcache:local_cpu_evict_failed_count_total", LMCACHES), "{{instance}} no room"),
            (engines("lmcache:num_slow_retrieval_by_time_total", LMCACHES), "{{instance}} slow loads"),
            (engines("lmcache:remote_ping_errors_total", LMCACHES), "{{instance}} remote unreachable")),
    ])),
    ("Workers with kvtier", wanting(KVTIER_ENGINE, [
        panel("Chunks of engines", "short", (engines("kvtier:loaded_chunks_total"), "{{instance}} loaded"),
            (engines("kvtier:stored_chunks_total"), "{{instance}} stored"), (engines("kvtier:declined_chunks_total"), "{{instance}} faster to compute")),
        panel("Hits by tier in engines", "short", (engines("kvtier:tier_hits_total", by="instance, tier"), PLACE)),
        panel("Failures in engines", "short", (engines("kvtier:failed_loads_total"), "{{instance}} failed loads"),
            (engines("kvtier:refused_chunks_total"), "{{instance}} chunks without room"),
            (engines("kvtier:tier_io_errors_total", by="instance, tier"), PLACE + " errors")),
    ])),
    ("kvtier: overview", wanting(KVTIER, [
        stat("Hits", "percentunit", HITS, "Chunks that gets handed out, of those they asked for."),
        stat("Gets", "reqps", total("lmcache:num_retrieve_requests_total", OURS)),
        stat("Chunks in memory", "short", now("kvtier_tier_chunks", 'tier="l1"')),
        stat("Chunks on NVMe", "short", now("kvtier_tier_chunks", 'tier="nvme"')),
        stat("Tiers paused or broken", "none", f"count(kvtier_tier_state{{{HERE_ONLY}}} >= 2) or vector(0)"),
        stat("Failed checks", "none", total("kvtier_tier_corrupt_total"), "Chunks a second that were dropped."),
    ])),
    ("kvtier: hits", wanting(KVTIER, [
        panel("Hits of gets and lookups", "percentunit", (HITS, "gets"),
            (f"{total('kvtier_lookup_hit_chunks_total')} / {total('kvtier_lookup_chunks_total')}", "lookups"), top=1),
        panel("Hits by tier", "short", (by_tier("kvtier_tier_hits_total"), PLACE), text="Chunks a second."),
        panel("Misses by tier", "short", (by_tier("kvtier_tier_misses_total"), PLACE), text="Chunks a second."),
        panel("Loads avoided", "short", (total("kvtier_joined_loads_total"), "joined another load"),
            (total("kvtier_not_worth_fetching_chunks_total"), "faster to compute"), (total("kvtier_prefetches_total"), "prefetched")),
        panel("Brought up from lower tiers", "short", (total("kvtier_promotions_total", by="instance"), "{{instance}}")),
        panel("Tokens stored and asked for", "short", (total("lmcache:num_stored_tokens_total", OURS), "stored"),
            (total("lmcache:num_requested_tokens_total", OURS), "asked for"), (total("lmcache:num_hit_tokens_total", OURS), "handed out")),
    ])),
    ("kvtier: tiers", wanting(KVTIER, [
        panel("Occupied", "percentunit", (f"{tier_now('kvtier_tier_used_bytes')} / {tier_now('kvtier_tier_capacity_bytes')}", PLACE), top=1),
        panel("Chunks", "short", (tier_now("kvtier_tier_chunks"), PLACE)),
        panel("Evictions", "short", (by_tier("kvtier_tier_evictions_total"), PLACE), text="Chunks a second."),
        panel("Read", "Bps", (by_tier("kvtier_tier_load_bytes_total"), PLACE)),
        panel("Written", "Bps", (by_tier("kvtier_tier_store_bytes_total"), PLACE)),
        panel("On the way", "bytes", (tier_now("kvtier_tier_queued_read_bytes"), PLACE + " loads"),
            (tier_now("kvtier_tier_queued_write_bytes"), PLACE + " stores")),
        panel("Leased and pinned", "short", (tier_now("kvtier_tier_leased_chunks"), PLACE + " leased"),
            (tier_now("kvtier_tier_pinned_chunks"), PLACE + " pinned")),
        panel("Oldest lease", "s", (tier_now("kvtier_tier_oldest_lease_seconds"), PLACE)),
        panel("Learned bandwidth", "Bps", (tier_now("kvtier_tier_read_bytes_per_second"), PLACE + " read"),
            (tier_now("kvtier_tier_write_bytes_per_second"), PLACE + " write")),
    ])),
    ("kvtier: times", wanting(KVTIER, [
        panel("Get", "s", *quantiles("lmcache:time_to_retrieve", OURS)),
        panel("Put", "s", *quantiles("lmcache:time_to_store", OURS)),
        panel("Lookup", "s", *quantiles("lmcache:time_to_lookup", OURS)),
        panel("Load from a lower tier", "s", *quantiles("kvtier_load_seconds")),
        panel("Store in a lower tier", "s", *quantiles("kvtier_store_seconds")),
        panel("Question to a shared tier", "s", *quantiles("kvtier_probe_seconds")),
    ])),
    ("kvtier: errors and health", wanting(KVTIER, [
        panel("State of tiers", "none", (tier_now("kvtier_tier_state"), PLACE), text="0: absent, 1: works, 2: paused, 3: broken."),
        panel("Errors of tiers", "short", (by_tier("kvtier_tier_io_errors_total"), PLACE + " refused"),
            (by_tier("kvtier_tier_corrupt_total"), PLACE + " failed check"), (by_tier("kvtier_tier_breaker_trips_total"), PLACE + " paused")),
        panel("Without room or time", "short", (total("kvtier_put_full_total"), "puts without room"),
            (total("kvtier_stores_dropped_total"), "stores dropped"), (total("kvtier_get_timeouts_total"), "gets out of time")),
    ])),
    ("kvtierd", wanting(KVTIERD, [
        panel("Requests", "reqps", (total("kvtierd_requests_total", by="route, code"), "{{route}} {{code}}")),
        panel("Duration", "s", *quantiles("kvtierd_request_seconds")),
        panel("Received and sent", "Bps", (total("kvtierd_received_bytes_total"), "received"), (total("kvtierd_sent_bytes_total"), "sent")),
        panel("Leases", "short", (total("kvtierd_lease_hits_total"), "granted"), (total("kvtierd_lease_misses_total"), "missed"),
            (total("kvtierd_lease_expirations_total"), "run out")),
        panel("Refused", "reqps", (total("kvtierd_refused_total", by="reason"), "{{reason}}"),
            (total("kvtierd_timeouts_total", by="kind"), "timeout {{kind}}"), (total("kvtierd_puts_cut_total"), "PUTs broken off")),
        panel("Objects and clients", "short", (now("kvtierd_objects", by="instance"), "{{instance}} objects"),
            (now("kvtierd_connections", by="instance"), "{{instance}} connections"), (now("kvtierd_leases", by="instance"), "{{instance}} leases")),
    ])),
    ("kvtier: events", wanting(KVTIER, [
        panel("Events", "short", (total("kvtier_events_total", by="instance"), "{{instance}}")),
        panel("Lost events", "short", (total("kvtier_events_lost_total"), "overwritten"),
            (total("kvtier_events_publish_lost_total"), "published too late"), (total("kvtier_events_slow_subscribers_total"), "slow subscribers")),
        panel("Controller", "short", (now("kvtier_controller_registered", by="instance"), "{{instance}} registered"),
            (now("kvtier_controller_chunks", by="instance"), "{{instance}} chunks")),
    ])),
]  # fmt: skip

DASHBOARDS = {
    "router.json": dashboard(
        "kvway-router", "kvway: router", ROUTER,
        variable("instance", "Router", "label_values(kvway_build_info, instance)"),
        variable("worker", "Worker", 'label_values(kvway_worker_usable{instance=~"$instance"}, worker)'),
        variable("model", "Model", 'label_values(vllm:num_incoming_requests_total{instance=~"$instance"}, model)'),
        variable("engine", "vLLM", "label_values(vllm:prefix_cache_queries_total, instance)"),
        variable("gpu_node", "Node with GPUs", "label_values(DCGM_FI_DEV_GPU_UTIL, Hostname)"),
    ),
    "cache.json": dashboard(
        "kvway-cache", "kvway: KV cache", CACHE,
        variable("instance", "Cache", "label_values(kvtier_build_info, instance)"),
        variable("tier", "Tier", 'label_values(kvtier_tier_state{instance=~"$instance"}, tier)'),
        variable("engine", "vLLM", "label_values(vllm:prefix_cache_queries_total, instance)"),
    ),
}  # fmt: skip


def main():
    stale = 0
    for name, content in DASHBOARDS.items():
        path = HERE / name
        text = json.dumps(content, indent=1) + "\n"
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.name} is not what dashboards.py writes: run it")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
