"""Where the weights of an engine come from, by vLLM's configuration and by the classes of the models that it loaded:
what weights.py gives names to.

A class of a model may load weights besides the model's own (`secondary_weights`): Ultravox takes its language model from
another id, whose revision nothing pins. What it loads is known once it is made, to the object that has it, which is found
among the callers of the connector.
"""

import os
import sys

from . import weights


def _source(model, load):
    return weights.Source(
        model.model, model.revision, str(load.load_format), load.download_dir,
        getattr(model, "model_weights", None) or "", getattr(model, "hf_config_path", None) or "",
        getattr(model.hf_config, "_commit_hash", None),
    )  # fmt: skip


def of(config):
    """weights.Source of the engine's model, and of what its configuration has it load besides."""
    found, draft = [_source(config.model_config, config.load_config)], config.speculative_config
    if draft is not None and getattr(draft, "method", None) == "custom_class":
        found.append(weights.Source(str(draft.model), stored_at=f"a proposer of the user's, {draft.model}"))
    elif draft is not None and getattr(draft, "draft_model_config", None) is not None:
        load = getattr(draft, "draft_load_config", None) or config.load_config
        found.append(_source(draft.draft_model_config, load))
    media = getattr(config.model_config, "multimodal_config", None)
    if scales := getattr(media, "mm_encoder_fp8_scale_path", None):
        found.append(weights.Source(str(scales)))
    return found


def _runner():
    """What loaded the models, among the callers, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        one = frame.f_locals.get("self")
        if all(callable(getattr(type(one), name, None)) for name in ("get_model", "get_draft_model")):
            return one
        frame = frame.f_back
    return None


def _configs(config, depth=4):
    """Configurations within a model's, which say what they were loaded from."""
    yield config
    for one in list(getattr(config, "__dict__", {}).values()) if depth > 0 else ():
        if hasattr(one, "model_type"):  # as all of transformers' have
            yield from _configs(one, depth - 1)


def _commit_of(model, config):
    """Commit of the hub's snapshot that the configuration of this id came from, or None."""
    for one in _configs(config):
        if getattr(one, "_name_or_path", None) == model and getattr(one, "_commit_hash", None):
            return one._commit_hash
    return None


def _besides(model, config, load):
    """weights.Source of all that a loaded model took besides its own weights. Unnamed: something else than an id or a
    path, and so unknown."""
    found = []
    modules = model.modules() if hasattr(model, "modules") else [model]
    for module in modules:
        for one in getattr(module, "secondary_weights", None) or ():
            place = getattr(one, "model_or_path", None)
            if not isinstance(place, str):
                raise weights.Unnamed(f"{type(module).__name__} loads weights from {one!r}")
            found.append(weights.Source(
                place, getattr(one, "revision", None), str(load.load_format), load.download_dir,
                config_commit=_commit_of(place, config.hf_config),
                subfolder=getattr(one, "subfolder", None) or "",
                patterns=tuple(getattr(one, "allow_patterns_overrides", None) or ()),
            ))  # fmt: skip
    return found


def besides(config):
    """weights.Source of what the classes of the engine's models loaded besides. To be called from within its runner.
    Unnamed: that is not known."""
    runner, draft = _runner(), config.speculative_config
    if runner is None:
        raise weights.Unnamed("the models that the engine loaded are not among the callers, nor what they load besides")
    found, models = [], [(runner.get_model(), config.model_config, config.load_config)]
    drafted = runner.get_draft_model()
    if drafted is not None:
        load = getattr(draft, "draft_load_config", None) or config.load_config
        models.append((drafted, getattr(draft, "draft_model_config", None) or config.model_config, load))
    for loaded, model, load in models:
        for one in _besides(loaded, model, load):
            own = (one.model, one.revision) == (model.model, model.revision)
            if own and not os.path.isdir(one.model):
                continue  # of the model's own snapshot, which names it already
            if one not in found:
                found.append(one)
    return found


REMOTE = "transformers_modules."  # modules of code that comes with models, in transformers


def _code(config, digests):
    """{module: SHA-256} of code that this engine runs, where its configuration takes some from another id ("org/other--
    file.Class"): neither its files nor its commit name that. OSError, Unnamed."""
    maps = [getattr(one, "auto_map", None) or {} for one in _configs(config.model_config.hf_config)]
    if not any("--" in str(place) for one in maps for place in one.values()):
        return {}
    files = {
        name: module.__file__
        for name, module in sorted(sys.modules.items())
        if name.startswith(REMOTE) and getattr(module, "__file__", None)
    }
    found = digests.of(list(files.values()))
    return {name.removeprefix(REMOTE): found[file] for name, file in files.items()}


def identify(config, digests):
    """weights.Identity of what the engine loaded."""
    try:
        more, code, began = besides(config), _code(config, digests), began_ns(config)
    except (OSError, weights.Unnamed) as error:
        return weights.Identity(None, f"{config.model_config.model}: {error}")
    found = weights.identify(of(config) + more, digests, began)
    if code and found.parts is not None:
        found.parts.append(["code", code])
    return found


def began_ns(config):
    """When the engine began to read its configuration, at the earliest; None: not known. Ray, and executors of a user's
    own, start workers from elsewhere than the process that read it."""
    parallel = config.parallel_config
    how = getattr(parallel, "distributed_executor_backend", None)
    if how not in (None, "mp", "uni", "external_launcher") or getattr(parallel, "data_parallel_backend", "mp") != "mp":
        return None
    return weights.began_ns()
