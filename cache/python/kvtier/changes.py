"""What the engine core is asked to do with its weights and adapters, seen from a connector that it makes.

The interface says nothing when weights are updated in place (`update_weights`, `reload_weights`, or any method that a
user's worker extension has) or when a LoRA adapter is loaded. All of it goes through a few methods of the engine core,
which is found among the callers while the connector is made; on that one object they are wrapped. They run on the
engine core's thread, between its steps.
"""

import contextlib
import functools
import sys
import time

# Methods of workers that leave weights alone. Whatever else is called may change them.
HARMLESS = frozenset({
    "check_health", "compute_weight_checksums", "get_kv_connector_handshake_metadata", "get_model_inspection",
    "init_weight_transfer_engine", "list_loras", "profile", "release_late_interaction_query_cache",
    "reset_encoder_cache", "reset_mm_cache", "save_sharded_state", "shutdown_weight_transfer_engine",
    "supports_draft_weight_updates", "synchronize_device", "update_max_model_len",
})  # fmt: skip
NEEDED = (  # together only an engine core has them
    "collective_rpc", "add_lora", "remove_lora", "reset_prefix_cache", "is_scheduler_paused",
)  # fmt: skip


def find_core():
    """The engine core that this is called from, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        core = frame.f_locals.get("self")
        if core is not None and all(callable(getattr(type(core), name, None)) for name in NEEDED):
            return core
        frame = frame.f_back
    return None


def _around(core, name, say, failed=None):
    """Has say() called with the arguments of a method of this object before it runs, and failed() if it raises."""
    inner = getattr(core, name)

    @functools.wraps(inner)
    def method(*args, **kwargs):
        with contextlib.suppress(Exception):  # no thread, say: the adapter stays without a name
            say(*args, **kwargs)
        try:
            return inner(*args, **kwargs)
        except BaseException:
            if failed is not None:
                failed(*args, **kwargs)
            raise

    setattr(core, name, method)


class Engine:
    """What adapters.Adapters has the engine do when an adapter is replaced."""

    def __init__(self, core):
        self.core = core

    def requests(self):
        """All that have not ended; it keeps others while their blocks are copied."""
        return [request for request in self.core.scheduler.requests.values() if not request.is_finished()]

    def drop_blocks(self):
        """No later request finds what the engine has cached itself; requests that run keep their blocks."""
        pool = self.core.scheduler.kv_cache_manager.block_pool
        pool.evict_blocks({block.block_id for block in pool.blocks if block.block_hash is not None})
        if len(pool.cached_block_hash_to_block) > 0:
            raise RuntimeError("some of its blocks stay cached")


SETTLE_S = 10.0  # loads and stores that are under way take no longer


def _reset_when_free(core, reset):
    """What reset() returns. Blocks of requests that wait for a load and of stores that are being copied are not the
    engine's to reset: it raises RuntimeError then, as from `/pause`, which never fails without a connector. So it takes
    steps, in which only requests that hold blocks go on, until there are none of these."""
    try:
        return reset()
    except RuntimeError:
        scheduler, step = getattr(core, "scheduler", None), getattr(core, "_process_engine_step", None)
        # Ranks of data parallelism that compute in step with each other take none alone.
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
    """weights_changed(what): called after a call that may have changed weights, also one that failed. engine_forgot():
    after the engine has emptied its own prefix cache. adapters: adapters.Adapters."""
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
