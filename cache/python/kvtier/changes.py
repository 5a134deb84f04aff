"""What the engine core is asked to do with its weights and adapters, seen from a connector that it makes.

The interface says nothing when weights are updated in place (`update_weights`, `reload_weights`, or any method that a
user's worker extension has) or when a LoRA adapter is loaded. All of it goes through a few methods of the engine core,
which is found among the callers while the connector is made; on that one object they are wrapped. They run on the
engine core's thread, between its steps.
"""

import contextlib
import functools
import sys

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


def _before(core, name, say):
    """Has say() called with the arguments of a method of this object before it runs."""
    inner = getattr(core, name)

    @functools.wraps(inner)
    def method(*args, **kwargs):
        with contextlib.suppress(Exception):  # no thread, say: the adapter stays without a name
            say(*args, **kwargs)
        return inner(*args, **kwargs)

    setattr(core, name, method)


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
        done = reset(*args, **kwargs)
        if done:
            engine_forgot()
        return done

    core.collective_rpc, core.reset_prefix_cache = collective_rpc, reset_prefix_cache
    _before(core, "add_lora", adapters.loaded)
    _before(core, "remove_lora", adapters.unloaded)
