"""A user's settings: `kv_connector_extra_config` of vLLM, as libkvtier's YAML and the connector's own keys.

	{"chunk_size": 256, "min_retrieve_tokens": 0, "save_decode_cache": true, "model_version": "",
	 "lookup_timeout_ms": 3000, "load_timeout_ms": 5000, "step_wait_ms": 2, "save_unfull_chunk": false,
	 "fetch_when_slower": false, "read_only": false,
	 "cache": {"l1": {"capacity": "20GiB"}, "nvme": {"path": "/mnt/nvme/kvtier"}, "l2": {"url": "redis://..."}}}

An existing LMCache configuration (LMCACHE_CONFIG_FILE, LMCACHE_*) keeps working: lmcache.py translates it, and keys set
here override it. `cache` is libkvtier's own configuration (cache/options/REFERENCE.md), as a mapping or as the path of
a YAML file. Sizes in it are those of one rank.
"""

import json
import os
from dataclasses import dataclass, field

from . import lmcache

KNOWN = {
    "chunk_size": 256,
    "min_retrieve_tokens": 0,
    "save_decode_cache": True,
    "model_version": "",
    "lookup_timeout_ms": 3000,
    "load_timeout_ms": 5000,
    "step_wait_ms": 2,
    "save_unfull_chunk": False,
    "fetch_when_slower": False,
    "read_only": False,
    "cache": {},
}


@dataclass
class Settings:
    chunk_tokens: int = 256
    min_retrieve_tokens: int = 0
    save_decode_cache: bool = True
    model_version: str = ""
    lookup_timeout_s: float = 3.0
    load_timeout_s: float = 5.0
    step_wait_s: float = 0.002  # longest wait of one step of the engine for answers, or, in an empty step, for loads
    save_unfull_chunk: bool = False
    fetch_when_slower: bool = False  # also loads chunks that would be computed faster
    read_only: bool = False  # loads other engines' chunks, stores none
    yaml: str = "{}"
    mistakes: list[str] = field(default_factory=list)


# Configuration that overrides a user's and leaves no tier but memory.
MEMORY_ONLY = {"nvme": {"path": ""}, "l2": {"url": ""}, "node": {"share": "never"}}
OUTLIVES = {"nvme": "path", "l2": "url"}


def outlives(text):
    """Returns whether this configuration of libkvtier keeps chunks longer than a process, or shares them."""
    try:
        found = json.loads(text)
    except ValueError:
        return any(section in text for section in MEMORY_ONLY)
    if not isinstance(found, dict):
        return False
    sections = {name: found.get(name) for name in MEMORY_ONLY}
    given = {name: section for name, section in sections.items() if isinstance(section, dict)}
    shares = given.get("node", {}).get("share", "never") != "never"
    return shares or any(given.get(name, {}).get(key) for name, key in OUTLIVES.items())


def _number(given, name, least, mistakes):
    value = given.get(name, KNOWN[name])
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        mistakes.append(f"{name}: found {value!r}, expected a whole number from {least} on")
        return KNOWN[name]
    return value


def _truth_value(given, name, mistakes):
    value = given.get(name, KNOWN[name])
    if not isinstance(value, bool):
        mistakes.append(f"{name}: found {value!r}, expected true or false")
        return KNOWN[name]
    return value


def _yaml(cache, mistakes):
    if isinstance(cache, dict):
        return json.dumps(cache)  # JSON is YAML
    if isinstance(cache, str):
        try:
            with open(cache, encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            mistakes.append(f"cache: {cache}: {error.strerror}; running with defaults")
            return "{}"
    mistakes.append("cache: expected a mapping or the path of a YAML file")
    return "{}"


def _over(base, own):
    """Joins two extra configurations; `cache` section by section, if both are mappings."""
    both = {**base, **own}
    first, second = base.get("cache"), own.get("cache")
    if isinstance(first, dict) and isinstance(second, dict):
        both["cache"] = {
            name: {**first.get(name, {}), **second[name]}
            if isinstance(second.get(name), dict)
            else second.get(name, first.get(name))
            for name in first.keys() | second.keys()
        }
    return both


def read(extra, environ=os.environ, rank=0, ranks=0, role="kv_both"):
    """Settings of an extra configuration and of LMCache's. Settings.mistakes lists settings that could not be applied;
    the others apply. rank: their rank, of `ranks` on this node. role: vLLM's kv_role; a kv_consumer stores nothing."""
    given = {name: value for name, value in (extra or {}).items() if not str(name).startswith(lmcache.PREFIX)}
    translated, problems = lmcache.read(environ, extra, rank, ranks)
    if translated is not None:
        given = _over(translated, given)
    mistakes = problems + [
        f"{name}: ignored, a key of LMCache's: {lmcache.OTHERS[name]}"
        if name in lmcache.OTHERS
        else f"{name}: unknown, expected one of {', '.join(sorted(KNOWN))}"
        for name in sorted(given.keys() - KNOWN.keys())
    ]
    return Settings(
        chunk_tokens=_number(given, "chunk_size", 1, mistakes),
        min_retrieve_tokens=_number(given, "min_retrieve_tokens", 0, mistakes),
        save_decode_cache=_truth_value(given, "save_decode_cache", mistakes),
        model_version=str(given.get("model_version", "")),
        lookup_timeout_s=_number(given, "lookup_timeout_ms", 1, mistakes) / 1000,
        load_timeout_s=_number(given, "load_timeout_ms", 1, mistakes) / 1000,
        step_wait_s=_number(given, "step_wait_ms", 0, mistakes) / 1000,
        save_unfull_chunk=_truth_value(given, "save_unfull_chunk", mistakes),
        fetch_when_slower=_truth_value(given, "fetch_when_slower", mistakes),
        read_only=_truth_value(given, "read_only", mistakes) or role == "kv_consumer",
        yaml=_yaml(given.get("cache", {}), mistakes),
        mistakes=mistakes,
    )
