"""The sources of an engine's weights, by vLLM's configuration; weights.py gives them names."""

import json
import re
import sys

from . import weights

BESIDES = ("audio_model_id", "text_model_id")  # they name further models of the hub, which a class loads (Ultravox)
PLACES = ("_name_or_path", "transformers_version")  # members of a configuration that do not affect the computation
REMOTE = "transformers_modules."  # modules of code that comes with models, in transformers


def _config(model):
    """A model's configuration in the engine, as JSON values. The server read it before this process began, perhaps from
    other files than this process: then no other engine has the same name."""
    told = [model.hf_config.to_dict(), getattr(model, "hf_image_processor_config", None)]
    text = json.dumps(told, sort_keys=True, default=lambda one: type(one).__name__)
    return json.loads(text, object_hook=lambda one: {name: one[name] for name in one if name not in PLACES})


def _source(model, load):
    return weights.Source(
        model.model, model.revision, str(load.load_format), load.download_dir,
        getattr(model, "model_weights", None) or "", getattr(model, "hf_config_path", None) or "", _config(model),
    )  # fmt: skip


def of(config):
    """weights.Source of the engine's model, and of further models that its configuration makes it load."""
    found, draft = [_source(config.model_config, config.load_config)], config.speculative_config
    if draft is not None and getattr(draft, "method", None) == "custom_class":
        found.append(weights.Source(str(draft.model), stored_at=f"a proposer of the user's, {draft.model}"))
    elif draft is not None and getattr(draft, "draft_model_config", None) is not None:
        load = getattr(draft, "draft_load_config", None) or config.load_config
        found.append(_source(draft.draft_model_config, load))
    for name in BESIDES:
        if model := getattr(config.model_config.hf_config, name, None):
            load = config.load_config
            found.append(weights.Source(model, load_format=str(load.load_format), download_dir=load.download_dir))
    media = getattr(config.model_config, "multimodal_config", None)
    if scales := getattr(media, "mm_encoder_fp8_scale_path", None):
        found.append(weights.Source(str(scales)))
    return found


def _code(configs, digests):
    """{module: SHA-256} of code that this engine runs, where a configuration takes some from another id ("org/other--
    file.Class"): neither its files nor its commit name that. OSError, Unnamed."""
    if not re.search(r'"auto_map": \{[^}]*--', json.dumps(configs)):
        return {}
    files = {
        name: module.__file__
        for name, module in sorted(sys.modules.items())
        if name.startswith(REMOTE) and getattr(module, "__file__", None)
    }
    found = digests.of(list(files.values()))
    return {name.removeprefix(REMOTE): found[file] for name, file in files.items()}


def identify(config, digests):
    """weights.Identity of the engine's loaded weights."""
    try:
        sources = of(config)
        code = _code([source.config for source in sources], digests)
    except (OSError, TypeError, ValueError, weights.Unnamed) as error:
        return weights.Identity(None, f"{config.model_config.model}: {error}")
    found = weights.identify(sources, digests, weights.started_ns())
    if code and found.parts is not None:
        found.parts.append(["code", code])
    return found
