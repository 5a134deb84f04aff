"""The scheduler's work for a rank: chunks to load and chunks to store."""

import ctypes
from dataclasses import dataclass, field

from . import library
from .ask import NO_TENANT


FRAGMENT = 2  # a part, like groups.WHOLE and ENDS: a chunk of a fragment (blending.py)


@dataclass
class LoadChunk:
    """Blocks of a chunk that a request wants: from number `skip` on, into these blocks."""

    name: bytes
    count: int  # blocks of the whole chunk
    skip: int  # with several groups of KV caches: a list, one for each of the object's
    block_ids: list[int]  # with several groups: a list of lists
    part: int | None = None  # groups.WHOLE or ENDS; None: there is one group


@dataclass
class Load:
    request: str
    chunks: list[LoadChunk]
    epoch: int = 0  # resets of the cache before the plan
    tenant: bytes = NO_TENANT


@dataclass
class Store:
    """A chunk that the engine has computed."""

    request: str
    name: bytes
    parent: bytes | None
    block_ids: list[int]
    tokens: int
    hashes: list[bytes] = field(default_factory=list)  # the engine's, one per block
    before: bytes | None = None  # the engine's hash of the block before
    token_ids: bytes | None = None  # u32 each, in the machine's order; None: events omit them
    lora: str | None = None  # name of the adapter
    epoch: int = 0
    lmcache_hash: int | None = None  # name for LMCache's controller
    tenant: bytes = NO_TENANT  # the tenant whose limits count
    part: int | None = None  # groups.WHOLE or ENDS, with a list of lists in block_ids; None: there is one group
    count: int = 0  # blocks of the chunk, if there are several groups
    files: tuple | None = None  # (path, adapters.print_of) of files that must be unchanged after the copy
    ticket: int = 0  # reported when no rank copies it any more; 0: no report


def item_of(store, key_of, size):
    """The library's description of a chunk to store. key_of: storage key by a chunk's name, tenant and part; size: its
    bytes."""
    item = library.Item(size=ctypes.sizeof(library.Item), tokens=store.tokens, bytes=size)
    item.key.bytes[:] = key_of(store.name, store.tenant, store.part)
    item.tenant.bytes[:] = store.tenant
    if store.parent is not None:
        parent = library.Key()
        parent.bytes[:] = key_of(store.parent, store.tenant, FRAGMENT if store.part == FRAGMENT else None)
        item.parent = ctypes.pointer(parent)
    if not store.hashes:
        return item
    blocks = library.Blocks(
        hashes=b"".join(store.hashes),
        hash_bytes=len(store.hashes[0]),
        count=len(store.hashes),
        parent=store.before,
        block_size=store.tokens // len(store.hashes),
        lora_name=store.lora.encode() if store.lora is not None else None,
    )
    if store.token_ids is not None:
        ids = (ctypes.c_uint32 * store.tokens).from_buffer_copy(store.token_ids)
        blocks.tokens = ctypes.cast(ids, ctypes.POINTER(ctypes.c_uint32))
    if store.lmcache_hash is not None:
        blocks.lmcache_hash, blocks.has_lmcache_hash = store.lmcache_hash, 1
    item.blocks = ctypes.pointer(blocks)
    item.blocks_size = ctypes.sizeof(blocks)
    return item
