"""The fingerprint: SHA-256 over all that decides what a chunk's bytes mean.

Two engines with the same fingerprint may read each other's chunks; so it must change with the model, its
weights (weights.py), the type and layout of the KV cache, block and chunk size, parallel sizes, and how the engine's
attention packs numbers within a block.
"""

import hashlib
import json

FORMAT = 3


def make(parts):
    """Hex digits of the fingerprint over a dictionary of JSON values."""
    text = json.dumps({"kvtier": FORMAT, **parts}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


ON_CPU = ("CPU_ATTN", "CPU_MLA")  # vLLM's own attention there: layout.cpu_kernels() says how it packs
X86 = ("x86_64", "AMD64")


def backend_name(backend):
    """Name of a class of vLLM's attention: what it calls itself, and the classes that it is made of."""
    made_of = [f"{one.__module__}.{one.__qualname__}" for one in backend.__mro__]
    return [backend.get_name(), *(one for one in made_of if not one.startswith(("abc.", "builtins.")))]


def packing(device, backends, machine, switches):
    """What decides, besides a block's shape and type, where its numbers lie, as JSON values; nothing where the packing of
    CPU kernels says it all. Two backends may give the same shape and yet another order (ROCM_ATTN, and AITER's with its
    shuffled layout). device: its type; backends: the layers' classes of attention in their order; machine: the CPU's
    architecture; switches: {name: text} of the engine's that its backends look at."""
    names = [backend_name(backend) for backend in backends]
    if device == "cpu":
        plain = all(name[0] in ON_CPU and name[1].startswith("vllm.") for name in names)
        if plain and machine in X86:
            return {}
        switches = {"machine": machine}
    same = all(name == names[0] for name in names)
    return {"packing": [names[:1] if same else names, switches]}


def key_rank(rank, tensor_parallel, heads):
    """The rank that a rank's chunks are named by: the first of those that hold the same heads. heads: KV heads of the
    model, 1 where all ranks hold the same latent vectors (MLA)."""
    copies = max(1, tensor_parallel // max(1, heads))
    return rank // copies * copies


def _entries(config):
    """(name, value) of all that a model's configuration has, in its lists and dictionaries as well."""
    if isinstance(config, list):
        for value in config:
            yield from _entries(value)
        return
    for name, value in (config if isinstance(config, dict) else getattr(config, "__dict__", {})).items():
        yield str(name), value
        if isinstance(value, (dict, list)):
            yield from _entries(value)


def most_heads(heads, config):
    """KV heads of the layers that have most. heads: what the engine calls the model's; config: the model's, which has
    further numbers where layers differ (swa_num_key_value_heads). One that is too large costs copies, nothing else."""
    for name, value in _entries(config):
        if name.endswith(("key_value_heads", "kv_heads", "attention_groups")):
            numbers = value if isinstance(value, list) else [value]
            heads = max([heads] + [n for n in numbers if isinstance(n, int)])
    return heads


def by_length(longest, config):
    """What a model computes otherwise in an engine of this longest context, as JSON values; nothing in most models.
    Embeddings of positions with two sets of factors (LongRoPE) take the second one for all prompts if the longest one is
    longer than what the model was trained with first; Llama 4 has its attention tuned (`attn_temperature_tuning`, which
    vLLM decides while it loads)."""
    told, entries = {}, list(_entries(config))
    if any(name == "long_factor" for name, _ in entries):
        first = {value for name, value in entries if name == "original_max_position_embeddings"}
        told["longer"] = [longest > n for n in sorted(n for n in first if isinstance(n, int))]
    for name, value in entries:
        if name == "attn_temperature_tuning":
            told[name] = bool(value)
    return told


def store_rank(rank, ranks, replica):
    """The number that a rank's store is named by. Data-parallel replicas have one configuration and ranks of the same
    numbers, and yet a store each: two processes cannot own one."""
    return replica * ranks + rank


def node_ranks(parallel):
    """Caches that this engine opens on this node, as far as its workers know: of all replicas of a mixture of
    experts. Workers of a dense model do not know of its other data-parallel replicas."""
    return max(1, parallel.local_world_size) * max(1, getattr(parallel, "data_parallel_size_local", 1) or 1)


def numbers(rank, ranks, replica):
    """Settings of a rank's cache: its store's number, and its own as a worker of its engine's at LMCache's controller."""
    return {"rank": store_rank(rank, ranks, replica), "controller": {"worker": rank}}
