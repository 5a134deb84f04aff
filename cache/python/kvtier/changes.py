"""Notices changes of the engine core's weights and adapters, from a connector that the core makes.

vLLM's interface reports neither updates of weights in place (`update_weights`, `reload_weights`, or any method of a
user's worker extension) nor loads of LoRA adapters. All of these pass through a few methods of the engine core, which
this module finds among the callers while the connector is made; it wraps the methods of that one object. They run on
the engine core's thread, between its steps.
"""

import contextlib
import functools
import sys
import time

# Methods of workers that leave weights alone. Any other method may change them.
HARMLESS = frozenset({
    "check_health", "compute_weight_checksums", "get_kv_connector_handshake_metadata", "get_model_inspection",
    "init_weight_transfer_engine", "list_loras", "profile", "release_late_interaction_query_cache",
    "reset_encoder_cache", "reset_mm_cache", "save_sharded_state", "shutdown_weight_transfer_engine",
    "supports_draft_weight_updates", "synchronize_device", "update_max_model_len",
})  # fmt: skip
NEEDED = (  # only an engine core has all of them
    "collective_rpc", "add_lora", "remove_lora", "reset_prefix_cache", "is_scheduler_paused",
)  # fmt: skip


def find_core():
    """The engine core that called this function, directly or not, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        core = frame.f_locals.get("self")
        if core is not None and all(callable(getattr(type(core), name, None)) for name in NEEDED):
            return core
        frame = frame.f_back
    return None


def _around(core, name, say, failed=None):
    """Wraps a method of this object: calls say() with its arguments before it runs, and failed() if it raises."""
    inner = getattr(core, name)

    @functools.wraps(inner)
    def method(*args, **kwargs):
        with contextlib.suppress(Exception):  # without a thread, say, the adapter stays without a name
            say(*args, **kwargs)
        try:
            return inner(*args, **kwargs)
        except BaseException:
            if failed is not None:
                failed(*args, **kwargs)
            raise

    setattr(core, name, method)


class Engine:
    """The engine's functions for adapters.Adapters when an adapter is replaced."""

    def __init__(self, core):
        self.core = core

    def requests(self):
        """All requests that have not ended; the engine keeps others while their blocks are copied."""
        return [request for request in self.core.scheduler.requests.values() if not request.is_finished()]

    def drop_blocks(self):
        """Hides all blocks that the engine has cached itself from later requests; running requests keep their
        blocks."""
        pool = self.core.scheduler.kv_cache_manager.block_pool
        pool.evict_blocks({block.block_id for block in pool.blocks if block.block_hash is not None})
        if len(pool.cached_block_hash_to_block) > 0:
            raise RuntimeError("some of its blocks stay cached")


SETTLE_S = 10.0  # longest time of loads and stores under way


def _reset_when_free(core, reset):
    """Resets once no block is in use, and returns the result of reset(). The engine cannot reset blocks of requests
    that wait for a load or of stores that are being copied: reset() raises RuntimeError then, as from `/pause`, which
    never fails without a connector. So this function takes steps, in which only requests that hold blocks go on, until
    there are no such requests."""
    try:
        return reset()
    except RuntimeError:
        scheduler, step = getattr(core, "scheduler", None), getattr(core, "_process_engine_step", None)
        # Data-parallel ranks that compute in step with each other take no step alone.
        if step is None or not hasattr(scheduler, "kv_holding_waiting") or getattr(core, "dp_group", None) is not None:
            raise
    before, until = scheduler.pause_state, time.monotonic() + SETTLE_S
    scheduler.set_pause_state(type(before).PAUSED_NEW)
    try:
        while True:
            step()
            late = time.monotonic() > until
            if not late and (scheduler.kv_holding_waiting or scheduler.has_finished_requests()):
                continue
            try:
                return reset()
            except RuntimeError:
                if late:
                    raise
    finally:
        scheduler.set_pause_state(before)


def watch(core, weights_changed, engine_forgot, adapters):
    """weights_changed(what): called after a method that may have changed weights, even if it failed. engine_forgot():
    called after the engine has emptied its own prefix cache. adapters: adapters.Adapters."""
    inner, reset = core.collective_rpc, core.reset_prefix_cache

    @functools.wraps(inner)
    def collective_rpc(method, *args, **kwargs):
        try:
            return inner(method, *args, **kwargs)
        finally:
            if not isinstance(method, str) or method not in HARMLESS:
                weights_changed(method if isinstance(method, str) else getattr(method, "__name__", "a function"))

    @functools.wraps(reset)
    def reset_prefix_cache(*args, **kwargs):
        done = _reset_when_free(core, lambda: reset(*args, **kwargs))
        if done:
            engine_forgot()
        return done

    core.collective_rpc, core.reset_prefix_cache = collective_rpc, reset_prefix_cache
    adapters.engine = Engine(core)
    _around(core, "add_lora", adapters.loaded, adapters.failed)
    _around(core, "remove_lora", adapters.unloaded)
