"""Where the weights of an engine come from, by vLLM's configuration: what weights.py gives names to."""

from . import weights


def of(config):
    """weights.Source of the engine's model, and of a draft model if there is one."""

    def source(model, load):
        return weights.Source(
            model.model, model.revision, str(load.load_format), load.download_dir,
            getattr(model, "model_weights", None) or "", getattr(model, "hf_config_path", None) or "",
            getattr(model.hf_config, "_commit_hash", None),
        )  # fmt: skip

    found, draft = [source(config.model_config, config.load_config)], config.speculative_config
    if draft is not None and getattr(draft, "draft_model_config", None) is not None:
        load = getattr(draft, "draft_load_config", None) or config.load_config
        found.append(source(draft.draft_model_config, load))
    return found


def began_ns(config):
    """When the engine began to read its configuration, at the earliest; None: not known. Ray, and executors of a user's
    own, start workers from elsewhere than the process that read it."""
    parallel = config.parallel_config
    how = getattr(parallel, "distributed_executor_backend", None)
    if how not in (None, "mp", "uni", "external_launcher") or getattr(parallel, "data_parallel_backend", "mp") != "mp":
        return None
    return weights.began_ns()
