"""A cache of libkvtier in this process, used as an engine's connector would, with an LMCache controller."""

import ctypes
import json
import logging
import pathlib
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "cache" / "python"))

from kvtier import chunks, controller, library  # noqa: E402

BYTES = 65536
CPU, DISK = "LocalCPUBackend", "LocalDiskBackend"


class Engine:
    """One engine. sections: of its cache's configuration."""

    def __init__(self, pull, reply, instance, chunk=32, **sections):
        sections.setdefault("l1", {"capacity": "64MiB"})
        own = {
            "pull": f"tcp://{pull}",
            "reply": f"tcp://{reply}",
            "instance": instance,
            "ip": "127.0.0.1",
            "heartbeat_time": "200ms",
            "heartbeat_delay": "100ms",
            "answer_time": "500ms",
            "hash_seed": "0",
        }
        sections["controller"] = {**own, **sections.get("controller", {})}
        self.chunk = chunk
        text = json.dumps(sections)
        self.cache = library.Cache(controller.texts(text, chunk))
        assert self.cache.mistakes == ""
        self.namer = controller.namer(text, chunk, chunk, logging.getLogger())

    def put(self, tokens):
        """Whole chunks of a prompt."""
        request = types.SimpleNamespace(all_token_ids=tokens)
        known, before = [], None
        for first in range(len(tokens) // self.chunk):
            name = self.namer.name(request, known, chunks.Chunk(first, 1, b"", None, self.chunk), 1)
            before = self._put(name, before)

    def _put(self, name, before):
        blocks = library.Blocks(
            hashes=name.to_bytes(8, "big"), hash_bytes=8, count=1, block_size=self.chunk, lmcache_hash=name, has_lmcache_hash=1
        )
        item = library.Item(
            size=ctypes.sizeof(library.Item),
            tokens=self.chunk,
            bytes=BYTES,
            blocks=ctypes.pointer(blocks),
            blocks_size=ctypes.sizeof(blocks),
        )
        key = library.Key()
        key.bytes[:] = name.to_bytes(8, "big") * 4
        item.key = key
        if before is not None:
            item.parent = ctypes.pointer(before)
        status, reservation, _ = self.cache.reserve([item])
        if reservation is not None:
            assert self.cache.commit(reservation, 1)
        else:
            assert status == library.EXISTS
        return key

    def metric(self, name):
        for line in self.cache.metrics().splitlines():
            if line.startswith(f"kvtier_controller_{name} "):
                return float(line.split()[1])
        raise AssertionError(name)

    def close(self):
        if self.cache.handle:
            self.cache.close()
