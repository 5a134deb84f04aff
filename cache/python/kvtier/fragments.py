"""Fragments of prompts in libkvtier (include/kvtier/kvtier_fragments.h), by ctypes: cached text that is not a prefix.

	found = cut(tokens, separator=[5, 7, 5])              # [(first, count)]
	f = Fragments(cache, open("config.json").read(), values="bfloat16", layers=2, heads=2, head=32)
	keys, values = plane(key_tensors), plane(value_tensors)   # one tensor a layer: [block, token, head, value]
	where = Place(keys, values, block_tokens=32, block_count=1024)
	f.store(Text(tokens[a:b], position=a), where.at(block_ids, a))
	loaded = f.load(Text(tokens[a:b], position=at), where.at(block_ids, at))    # keys are turned to `at`
	again = choose(found, len(tokens), share=0.15, first_tokens=4, deviation=deviation(...))

Every method but close may be called from any thread, and none holds the GIL while it copies.
"""

import ctypes
from array import array
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_float, c_int64, c_size_t
from ctypes import c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass

from . import library
from .ask import NO_TENANT

BY_SEPARATOR, BY_BOUNDS, BY_CONTENT = 1, 2, 3
VALUES = {"float32": 0, "bfloat16": 1, "float16": 2}
WHY_BYTES = 160
REFUSALS = ("blended", "header", "model", "tokens", "full")
SHARE_MOST = 0.3


class Cut(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("by", c_uint32),
        ("separator", POINTER(c_uint32)),
        ("separator_count", c_size_t),
        ("bounds", POINTER(c_uint32)),
        ("bound_count", c_size_t),
        ("min_tokens", c_uint32),
        ("average_tokens", c_uint32),
        ("max_tokens", c_uint32),
        ("reserved", c_uint32),
    ]


class Fragment(Structure):
    _fields_ = [("first", c_uint32), ("count", c_uint32)]


class Config(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("values", c_uint32),
        ("model", c_char_p),
        ("model_bytes", c_size_t),
        ("layers", c_uint32),
        ("heads", c_uint32),
        ("head", c_uint32),
        ("value_head", c_uint32),
        ("chunk_tokens", c_uint32),
        ("rank", c_uint32),
        ("fingerprint", c_uint8 * 32),
        ("lease_ns", c_uint64),
    ]


class Plane(Structure):
    _fields_ = [
        ("layers", POINTER(c_void_p)),
        ("block", c_int64),
        ("token", c_int64),
        ("head", c_int64),
        ("value", c_int64),
    ]


class PlaceParts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("block_tokens", c_uint32),
        ("keys", Plane),
        ("values", Plane),
        ("block_count", c_uint64),
        ("blocks", POINTER(c_int64)),
        ("blocks_listed", c_size_t),
        ("slot", c_uint64),
    ]


class TextParts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("blended", c_uint32),
        ("tokens", POINTER(c_uint32)),
        ("count", c_size_t),
        ("lora", c_char_p),
        ("lora_bytes", c_size_t),
        ("tenant", library.Tenant),
        ("position", c_uint64),
    ]


class Stats(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("reserved", c_uint32),
        *((name, c_uint64) for name in (
            "stores", "stored_chunks", "stored_tokens", "stored_bytes", "loads", "hit_tokens", "missed_tokens",
            "loaded_bytes", "moved_bytes")),
        ("refused", c_uint64 * len(REFUSALS)),
    ]  # fmt: skip


class Blend(Structure):
    _fields_ = [("size", c_uint32), ("first_tokens", c_uint32), ("share", c_double)]


FUNCTIONS = {
    "kvt_fragments_cut": [POINTER(Cut), POINTER(c_uint32), c_size_t, POINTER(Fragment), c_size_t, POINTER(c_size_t)],
    "kvt_fragments_config_init": [POINTER(Config), c_size_t],
    "kvt_fragments_create": [c_void_p, POINTER(Config), POINTER(c_void_p), c_char_p],
    "kvt_fragments_destroy": [c_void_p],
    "kvt_fragments_chunk_bytes": [c_void_p, c_uint32],
    "kvt_fragments_keys": [c_void_p, POINTER(TextParts), POINTER(library.Key), c_size_t, POINTER(c_size_t)],
    "kvt_fragments_store": [c_void_p, POINTER(TextParts), POINTER(PlaceParts), POINTER(c_size_t)],
    "kvt_fragments_find": [c_void_p, POINTER(TextParts), c_uint64, POINTER(c_size_t)],
    "kvt_fragments_load": [c_void_p, POINTER(TextParts), c_size_t, POINTER(PlaceParts), POINTER(c_size_t)],
    "kvt_fragments_stats": [c_void_p, POINTER(Stats)],
    "kvt_blend_deviation": [c_uint32, c_void_p, c_void_p, c_size_t, c_size_t, POINTER(c_float)],
    "kvt_blend_choose": [POINTER(Blend), POINTER(Fragment), c_size_t, POINTER(c_float), c_size_t, POINTER(c_uint8),
                         POINTER(c_size_t)],
}  # fmt: skip
RESULTS = {
    "kvt_fragments_config_init": None, "kvt_fragments_destroy": None, "kvt_fragments_chunk_bytes": c_uint64,
}  # fmt: skip


def load_library():
    """The library with these functions; library.KvtierError: it has none of them."""
    lib = library.load_library()
    try:
        for name, arguments in FUNCTIONS.items():
            function = getattr(lib, name)
            function.argtypes = arguments
            function.restype = RESULTS.get(name, ctypes.c_int)
    except AttributeError as error:
        raise library.KvtierError(f"this libkvtier knows no fragments: {error}") from error
    return lib


def ids(tokens):
    """Token ids as an array for C."""
    packed = tokens if isinstance(tokens, array) and tokens.typecode == "I" else array("I", tokens)
    return (c_uint32 * len(packed)).from_buffer_copy(packed) if len(packed) else (c_uint32 * 1)()


def cut(tokens, separator=None, bounds=None, content=None, max_tokens=0):
    """[(first, count)] of a prompt's fragments, which cover it. One of: separator, token ids; bounds, first tokens of
    segments; content, (least, average, most) tokens. max_tokens: longer fragments are cut; 0: no limit."""
    lib = load_library()
    how = Cut(size=ctypes.sizeof(Cut), max_tokens=max_tokens)
    if separator is not None:
        how.by, how.separator, how.separator_count = BY_SEPARATOR, ids(separator), len(separator)
    elif bounds is not None:
        how.by, how.bounds, how.bound_count = BY_BOUNDS, ids(bounds), len(bounds)
    else:
        how.by = BY_CONTENT
        how.min_tokens, how.average_tokens, how.max_tokens = content
    packed, most, found = ids(tokens), 256, c_size_t()
    while True:
        out = (Fragment * most)()
        status = lib.kvt_fragments_cut(byref(how), packed, len(tokens), out, most, byref(found))
        if status != library.OK:
            raise ValueError("this is no way to cut a prompt")
        if found.value <= most:
            return [(f.first, f.count) for f in out[: found.value]]
        most = found.value


def plane(tensors):
    """Keys or values of all layers, one tensor each: [block, token, head, value], of one shape and any strides."""
    size, strides = tensors[0].element_size(), tensors[0].stride()
    layers = (c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
    return Plane(layers, *(stride * size for stride in strides))


class Place:
    """An engine's paged cache in memory of this machine."""

    def __init__(self, keys, values, block_tokens, block_count):
        """keys, values: plane(); their tensors have to stay. values None: for latent keys, which have none."""
        self.keys, self.values = keys, values if values is not None else Plane()
        self.block_tokens, self.block_count = block_tokens, block_count

    def at(self, block_ids, slot):
        """The place of a fragment whose first token is token `slot` of a text in these blocks."""
        blocks = (c_int64 * len(block_ids))(*block_ids)
        return PlaceParts(
            size=ctypes.sizeof(PlaceParts), block_tokens=self.block_tokens, keys=self.keys, values=self.values,
            block_count=self.block_count, blocks=blocks, blocks_listed=len(block_ids), slot=slot,
        )  # fmt: skip


@dataclass
class Text:
    """A fragment: its tokens, tenant and adapter, and its position."""

    tokens: object  # ids
    position: int  # of its first token
    tenant: bytes = NO_TENANT
    lora: bytes | None = None
    blended: bool = False  # its keys and values are not exact for the text before it

    def parts(self):
        return TextParts(
            size=ctypes.sizeof(TextParts), blended=int(self.blended), tokens=ids(self.tokens), count=len(self.tokens),
            lora=self.lora, lora_bytes=len(self.lora) if self.lora is not None else 0,
            tenant=library.Tenant((c_uint8 * 16)(*self.tenant)), position=self.position,
        )  # fmt: skip


class Fragments:
    """A model's fragments in one library.Cache."""

    def __init__(
        self, cache, model, values, layers, heads, head, value_head=None, chunk_tokens=256, fingerprint=bytes(32), rank=0,
        load_timeout_s=5.0,
    ):  # fmt: skip
        """model: text of config.json. values: name of the type. value_head None: as head; 0: latent keys, which have no
        values. ValueError: keys of this model cannot be moved, with the reason; library.KvtierError: the library knows no
        fragments."""
        self.lib = load_library()
        self.cache, self.handle = cache, c_void_p()
        if values not in VALUES:
            raise ValueError(f"keys of type {values} cannot be moved")
        text = model.encode()
        config = Config()
        self.lib.kvt_fragments_config_init(byref(config), ctypes.sizeof(Config))
        config.values, config.model, config.model_bytes = VALUES[values], text, len(text)
        config.layers, config.heads, config.head = layers, heads, head
        config.value_head = head if value_head is None else value_head
        config.chunk_tokens, config.rank = chunk_tokens, rank
        config.fingerprint[:] = fingerprint
        config.lease_ns = int(load_timeout_s * 1e9)
        why = ctypes.create_string_buffer(WHY_BYTES)
        if self.lib.kvt_fragments_create(cache.handle, byref(config), byref(self.handle), why) != library.OK:
            raise ValueError(why.value.decode(errors="replace"))

    def close(self):
        """Closes the fragments, before the cache."""
        self.lib.kvt_fragments_destroy(self.handle)
        self.handle = c_void_p()

    def chunk_bytes(self, tokens):
        return self.lib.kvt_fragments_chunk_bytes(self.handle, tokens)

    def keys(self, text):
        """Storage keys of the fragment's chunks, in order: to erase, pin or prefetch them."""
        most = len(text.tokens)
        out, found = (library.Key * most)(), c_size_t()
        status = self.lib.kvt_fragments_keys(self.handle, byref(text.parts()), out, most, byref(found))
        return [bytes(key.bytes) for key in out[: found.value]] if status == library.OK else []

    def store(self, text, place):
        """Stores a fragment. Returns its tokens that are there now, from its beginning on. ValueError: it is blended,
        or not in place."""
        stored = c_size_t()
        status = self.lib.kvt_fragments_store(self.handle, byref(text.parts()), byref(place), byref(stored))
        if status == library.EINVAL:
            raise ValueError("a fragment that is blended, or whose blocks do not hold it, is not stored")
        return stored.value

    def find(self, text, timeout_ns=0):
        """Number of the fragment's tokens that are there, from its beginning on."""
        found = c_size_t()
        status = self.lib.kvt_fragments_find(self.handle, byref(text.parts()), timeout_ns, byref(found))
        return found.value if status == library.OK else 0

    def load(self, text, place, first=0):
        """Puts a fragment into place, keys turned to its position, from its token number `first` on. Returns its tokens
        that are in place, from its beginning on."""
        loaded = c_size_t()
        parts = text.parts()
        status = self.lib.kvt_fragments_load(self.handle, byref(parts), first, byref(place), byref(loaded))
        if status == library.EINVAL:
            raise ValueError("a place whose blocks do not hold the fragment")
        return loaded.value if status == library.OK else 0

    def stats(self):
        """Counts since the beginning, by name; `refused` by reason."""
        out = Stats(size=ctypes.sizeof(Stats))
        if self.lib.kvt_fragments_stats(self.handle, byref(out)) != library.OK:
            return {}
        found = {name: getattr(out, name) for name, _ in Stats._fields_[2:-1]}
        return {**found, "refused": dict(zip(REFUSALS, out.refused, strict=True))}


def deviation(values, computed, loaded, tokens, count, into=None):
    """Adds the squared distance of each token's values to `into`, an array of float for ctypes (None: zeros), and returns
    it. computed, loaded: addresses of `tokens` times `count` values of type `values`, one layer's keys or values."""
    found = into if into is not None else (c_float * tokens)()
    status = load_library().kvt_blend_deviation(VALUES[values], computed, loaded, tokens, count, found)
    if status != library.OK:
        raise ValueError("no values to compare")
    return found


def choose(fragments, prompt_tokens, share, first_tokens=0, deviation=None):
    """Numbers of the tokens of loaded fragments [(first, count)] that are computed again. deviation: a number for each
    token of the prompt, or None."""
    lib = load_library()
    blend = Blend(size=ctypes.sizeof(Blend), first_tokens=first_tokens, share=share)
    array_of = (Fragment * max(1, len(fragments)))(*fragments)
    numbers = None if deviation is None else (c_float * prompt_tokens)(*deviation)
    chosen = (c_uint8 * max(1, prompt_tokens))()
    status = lib.kvt_blend_choose(
        byref(blend), array_of, len(fragments), numbers, prompt_tokens, chosen, None)  # fmt: skip
    if status != library.OK:
        raise ValueError("fragments that overlap or leave the prompt, or a share that is not 0 to 0.3")
    return [i for i, one in enumerate(bytes(chosen)[:prompt_tokens]) if one]
