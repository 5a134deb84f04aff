"""Chunks of a prompt: runs of whole blocks, each named by the engine's hash of its last block.

That hash covers everything before it (tokens, cache salt, LoRA, images), so that a chunk's name is also the name of the
whole prefix that it ends. Further contents that change the bytes (the files of a LoRA adapter under the same name and
path; an image that has no name by content) are mixed into the name.
"""

import hashlib
from dataclasses import dataclass


@dataclass
class Chunk:
    """Blocks [first, first + count) of a request."""

    first: int
    count: int
    name: bytes  # chain id: the engine's hash of the last block
    parent: bytes | None  # name of the chunk before
    tokens: int


def chunks_of(hashes, block_size, per_chunk, blocks, mixed=b"", tail=False, skip=0, own=(None, b"")):
    """Chunks of the first `blocks` blocks; hashes: the engine's, one per block. tail: includes the blocks after the
    last whole chunk, as a chunk of fewer blocks. skip: number of chunks left out at the beginning. own: (number of a
    block or None, bytes that are mixed into names from that block on)."""

    def name(block):
        found, more = bytes(hashes[block]), mixed
        if own[0] is not None and block >= own[0]:
            more += own[1]
        return hashlib.sha256(found + more).digest() if more else found

    found = []
    blocks = min(blocks, len(hashes))
    for first in range(skip * per_chunk, blocks, per_chunk):
        count = min(per_chunk, blocks - first)
        if count < per_chunk and not tail:
            break
        parent = name(first - 1) if first > 0 else None
        found.append(Chunk(first, count, name(first + count - 1), parent, count * block_size))
    return found


def blocks_per_chunk(block_size, chunk_tokens):
    """The largest multiple of a block within chunk_tokens, at least one block."""
    return max(1, chunk_tokens // block_size)
