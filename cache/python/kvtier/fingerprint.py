"""The fingerprint: SHA-256 over all that decides the meaning of a chunk's bytes.

Two engines with the same fingerprint may read each other's chunks; so it must change with the model, its weights
(weights.py), the type and layout of the KV cache, block and chunk size, parallel sizes, and how the engine's attention
packs numbers within a block.
"""

import hashlib
import json

FORMAT = 3


def make(parts):
    """Hex digits of the fingerprint over a dictionary of JSON values."""
    text = json.dumps({"kvtier": FORMAT, **parts}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


ON_CPU = ("CPU_ATTN", "CPU_MLA")  # vLLM's own attention there: layout.cpu_kernels() describes its packing
X86 = ("x86_64", "AMD64")


def backend_name(backend):
    """Name of a class of vLLM's attention: its own name, and the classes from which it is made."""
    made_of = [f"{one.__module__}.{one.__qualname__}" for one in backend.__mro__]
    return [backend.get_name(), *(one for one in made_of if not one.startswith(("abc.", "builtins.")))]


def packing(device, backends, machine, switches):
    """Settings that decide, besides a block's shape and type, the places of its numbers, as JSON values; empty where
    the packing of CPU kernels decides alone. Two backends may give the same shape but different orders (ROCM_ATTN, and
    AITER's with its shuffled layout). device: its type; backends: the layers' classes of attention in their order;
    machine: the CPU's architecture; switches: {name: text} of the engine's that its backends look at."""
    names = [backend_name(backend) for backend in backends]
    if device == "cpu":
        plain = all(name[0] in ON_CPU and name[1].startswith("vllm.") for name in names)
        if plain and machine in X86:
            return {}
        switches = {"machine": machine}
    same = all(name == names[0] for name in names)
    return {"packing": [names[:1] if same else names, switches]}


def key_rank(rank, tensor_parallel, heads):
    """The rank whose number is in the names of a rank's chunks: the first of those that hold the same heads. heads: KV
    heads of the model, 1 where all ranks hold the same latent vectors (MLA)."""
    copies = max(1, tensor_parallel // max(1, heads))
    return rank // copies * copies


def _entries(config):
    """(name, value) of all members of a model's configuration, including those in its lists and dictionaries."""
    if isinstance(config, list):
        for value in config:
            yield from _entries(value)
        return
    for name, value in (config if isinstance(config, dict) else getattr(config, "__dict__", {})).items():
        yield str(name), value
        if isinstance(value, (dict, list)):
            yield from _entries(value)


def most_heads(heads, config):
    """KV heads of the layers that have most. heads: the engine's number for the model; config: the model's, which has
    further numbers where layers differ (swa_num_key_value_heads). A number that is too large only costs copies."""
    for name, value in _entries(config):
        if name.endswith(("key_value_heads", "kv_heads", "attention_groups")):
            numbers = value if isinstance(value, list) else [value]
            heads = max([heads] + [n for n in numbers if isinstance(n, int)])
    return heads


def by_length(longest, config):
    """Properties of a model's computation that depend on the engine's longest context, as JSON values; empty for most
    models. Embeddings of positions with two sets of factors (LongRoPE) take the second one for all prompts if the
    longest one is longer than what the model was trained with first; Llama 4 has its attention tuned
    (`attn_temperature_tuning`, which vLLM decides while it loads)."""
    told, entries = {}, list(_entries(config))
    if any(name == "long_factor" for name, _ in entries):
        first = {value for name, value in entries if name == "original_max_position_embeddings"}
        told["longer"] = [longest > n for n in sorted(n for n in first if isinstance(n, int))]
    for name, value in entries:
        if name == "attn_temperature_tuning":
            told[name] = bool(value)
    return told


def store_rank(rank, ranks, replica):
    """The number in the name of a rank's store. Data-parallel replicas have one configuration and ranks of the same
    numbers, but a store each: two processes cannot own one store."""
    return replica * ranks + rank


def node_ranks(parallel):
    """Number of caches that this engine opens on this node, as far as its workers know: those of all replicas of a
    mixture of experts. Workers of a dense model do not know of its other data-parallel replicas."""
    return max(1, parallel.local_world_size) * max(1, getattr(parallel, "data_parallel_size_local", 1) or 1)


def numbers(rank, ranks, replica):
    """Settings of a rank's cache: its store's number, and its own number as a worker of its engine at LMCache's
    controller."""
    return {"rank": store_rank(rank, ranks, replica), "controller": {"worker": rank}}
