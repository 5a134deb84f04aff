"""The names by which LMCache's controller knows chunks, made in the scheduler.

A chunk's name there is LMCache's hash of its tokens and of all tokens before them. It cannot be derived from the
engine's block hashes, so each store carries it to the ranks, whose caches report it to the controller. libkvtier
computes it by the settings of its section `controller` (cache/options/REFERENCE.md); without `controller.pull` there
are no names.

Prompts with a LoRA adapter, a cache salt or images have no name: LMCache's hash covers the bare tokens only, and the
router would send other prompts with the same tokens here.
"""

import array
import ctypes
import json
import os

from . import library


def texts(yaml, chunk_tokens, engine=""):
    """Configuration texts of a cache, with the engine's data: its hash seed and its name, unless they are set, and the
    length of chunks. engine: the same for all ranks of one engine, different for others."""
    known = {"hash_seed": os.environ.get("PYTHONHASHSEED") or "unset"}
    if engine:
        known["instance"] = f"kvtier_{engine}"
    return [json.dumps({"controller": known}), yaml, json.dumps({"controller": {"chunk_size": min(chunk_tokens, 8192)}})]


def namer(yaml, chunk_tokens, block_size, log):
    """A Namer, or None: no controller is configured, or its hash cannot be computed."""
    try:
        made = Namer(yaml, chunk_tokens, block_size, log)
    except library.KvtierError as error:
        log.warning("kvtier: no chunk can be named to a controller: %s", error)
        return None
    if made.root is None:
        made.close()
        return None
    return made


def nameable(request):
    """Returns whether LMCache's hash covers everything on which the request's KV depends."""
    return not (
        getattr(request, "lora_request", None)
        or getattr(request, "cache_salt", None)
        or getattr(request, "mm_features", None)
        or getattr(request, "prompt_embeds", None) is not None
    )


class Namer:
    """Names of a request's chunks, each made from the one before."""

    def __init__(self, yaml, chunk_tokens, block_size, log):
        self.block_size = block_size
        self.root = None  # None: no controller is configured
        self.lib = library.load_library()
        self.config = ctypes.create_string_buffer(library.CONFIG_BYTES)
        self.lib.kvt_config_init(self.config, library.CONFIG_BYTES)
        for text in texts(yaml, chunk_tokens):
            data = text.encode()  # the ranks log the mistakes in it
            self.lib.kvt_config_read(self.config, b"cache", data, len(data), None)
        root = ctypes.c_uint64()
        status = self.lib.kvt_lmcache_root(self.config, ctypes.byref(root))
        if status == library.OK:
            self.root = root.value
        elif status != library.MISS:
            log.warning(
                "kvtier: no chunk can be named to the controller: %s; set PYTHONHASHSEED, the same for all "
                "engines and the router, or controller.none_hash",
                self.lib.kvt_status_text(status).decode(),
            )

    def close(self):
        self.lib.kvt_config_finish(self.config)

    def name(self, request, known, chunk, per_chunk):
        """Name of a chunk, or None. `known`: names of the request's whole chunks so far, to which this call adds."""
        if not nameable(request):
            return None
        tokens, index = request.all_token_ids, chunk.first // per_chunk
        while len(known) <= index:
            first = len(known) * per_chunk
            count = chunk.count if first == chunk.first else per_chunk
            name = self._next(known[-1] if known else self.root, tokens, first, count)
            if name is None or count < per_chunk:
                return name
            known.append(name)
        return known[index]

    def _next(self, before, tokens, first, count):
        """Name of blocks [first, first + count), which follow the chunk with this name."""
        part = array.array("I", tokens[first * self.block_size : (first + count) * self.block_size])
        out = ctypes.c_uint64()
        status = self.lib.kvt_lmcache_hash(
            self.config, before, part.buffer_info()[0], len(part), ctypes.byref(out)
        )
        return out.value if status == library.OK else None
