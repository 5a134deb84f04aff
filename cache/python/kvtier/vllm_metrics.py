"""Counts of the connector on vLLM's own /metrics.

Names that LMCache's users watch where the meaning is the same (`lmcache:num_lookup_tokens_total`,
`lmcache:num_lookup_hits_total`, `lmcache:num_vllm_hit_tokens_total`, `lmcache:request_cache_hit_rate`), `kvtier:` for
the rest; counts of tiers carry the label `tier` (tiers.py). A worker passes its counts since the last step; vLLM sums
them over the ranks and sends them to the API server.

The module also converts events of the tiers into the engine's own KV events, for its publisher: hashes in the width of
the engine's other events, media by vLLM's names.
"""

from . import events, tiers
from .versions import BlockRemoved, BlockStored, KVConnectorPromMetrics, KVConnectorStats, maybe_convert_block_hash

# count -> (metric, help); without "_total", which the client library adds
METRICS = {
    "lookup_tokens": ("lmcache:num_lookup_tokens", "Tokens that lookups in kvtier asked for."),
    "hit_tokens": ("lmcache:num_lookup_hits", "Tokens that lookups in kvtier found."),
    "vllm_hit_tokens": ("lmcache:num_vllm_hit_tokens", "Tokens found in vLLM's own cache before kvtier was asked."),
    "loads": ("kvtier:loads", "Requests for which chunks were loaded."),
    "loaded_chunks": ("kvtier:loaded_chunks", "Chunks copied into vLLM's cache."),
    "failed_loads": ("kvtier:failed_loads", "Loads after which vLLM had to compute some of the blocks."),
    "failed_blocks": ("kvtier:failed_blocks", "Blocks that loads did not fill and vLLM had to compute."),
    "stored_chunks": ("kvtier:stored_chunks", "Chunks copied out of vLLM's cache."),
    "existing_chunks": ("kvtier:existing_chunks", "Chunks that the cache had already."),
    "refused_chunks": ("kvtier:refused_chunks", "Chunks for which there was no room, or no time."),
    "declined_chunks": ("kvtier:declined_chunks", "Chunks that were found and computed, since that was faster."),
    "events": ("kvtier:events", "KV events of the tiers that ranks reported."),
    "lost_events": ("kvtier:lost_events", "KV events of the tiers that were lost because too many came at once."),
    "resets": ("kvtier:resets", "Resets of the cache."),
    "stored_fragment_chunks": ("kvtier:stored_fragment_chunks", "Chunks of fragments copied out of vLLM's cache."),
    "loaded_fragment_chunks": (
        "kvtier:loaded_fragment_chunks", "Chunks of fragments copied into vLLM's cache: what follows them is not exact."),
    "blended_requests": ("kvtier:blended_requests", "Loads of fragments: answers to these requests are not exact."),
    "blended_tokens": ("kvtier:blended_tokens", "Tokens of prompts that were taken from fragments."),
}
HIT_RATE = "lmcache:request_cache_hit_rate"
HIT_RATE_BUCKETS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)


class KVTierStats(KVConnectorStats):
    """Counts, and hit rates of requests, since the last time."""

    def reset(self):
        self.data = {}

    def is_empty(self):
        return not self.data

    def aggregate(self, other):
        for name, value in other.data.items():
            if isinstance(value, list):
                self.data[name] = self.data.get(name, []) + value
            else:
                self.data[name] = self.data.get(name, 0) + value
        return self

    def reduce(self):
        return {name: value for name, value in self.data.items() if not isinstance(value, list)}


class KVTierPromMetrics(KVConnectorPromMetrics):
    """The counts as Prometheus metrics, one set for each engine."""

    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self.counters = {
            name: self._per_engine(self._counter_cls(
                name=metric, documentation=text, labelnames=labelnames))
            for name, (metric, text) in METRICS.items()
        }  # fmt: skip
        self.tier_counters = {
            name: self._counter_cls(
                name=f"kvtier:tier_{name}", documentation=text, labelnames=[*labelnames, "tier"])
            for name, text in tiers.METRICS.items()
        }
        self.hit_rate = self._per_engine(self._histogram_cls(
            name=HIT_RATE, documentation="Share of a request's prompt that some cache had.",
            labelnames=labelnames, buckets=HIT_RATE_BUCKETS))  # fmt: skip

    def _per_engine(self, metric):
        return {
            engine: metric.labels(*values) for engine, values in self.per_engine_labelvalues.items()
        }

    def observe(self, transfer_stats_data, engine_idx=0):
        for name, value in transfer_stats_data.items():
            if name == "hit_rates":
                for rate in value:
                    self.hit_rate[engine_idx].observe(rate)
            elif name in self.counters:
                self.counters[name][engine_idx].inc(value)
            else:
                self._observe_tier(engine_idx, *name.partition(":")[::2], value)

    def _observe_tier(self, engine_idx, name, tier, value):
        if name in self.tier_counters and tier:
            labels = (*self.per_engine_labelvalues[engine_idx], tier)
            self.tier_counters[name].labels(*labels).inc(value)


# tier -> medium, locality
PLACES = {0: ("CPU", None), 1: ("STORAGE", "LOCAL"), 2: ("STORAGE", "REMOTE")}


def kv_event(event, group_kind, group=0):
    """An event of a tier as vLLM's event, or None: vLLM has none for it. group_kind: the engine's name of its group;
    group: its number."""
    if event.tier not in PLACES or event.kind not in (events.STORED, events.REMOVED):
        return None
    medium, locality = PLACES[event.tier]
    hashes = [maybe_convert_block_hash(h) for h in event.hashes]
    if event.kind == events.REMOVED:
        return BlockRemoved(block_hashes=hashes, medium=medium, group_idx=group, locality=locality)
    return BlockStored(
        block_hashes=hashes,
        parent_block_hash=maybe_convert_block_hash(event.parent) if event.parent is not None else None,
        token_ids=memoryview(event.tokens).cast("I").tolist() if event.tokens is not None else [],
        block_size=event.block_size,
        lora_id=None,
        medium=medium,
        lora_name=event.lora,
        group_idx=group,
        kv_cache_spec_kind=group_kind,
        locality=locality,
    )
