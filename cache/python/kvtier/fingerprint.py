"""The fingerprint: SHA-256 over all that decides what a chunk's bytes mean.

Two engines with the same fingerprint may read each other's chunks; so it must change with the model, its
weights (weights.py), the type and layout of the KV cache, block and chunk size, parallel sizes, and, on a CPU, the
packing of its kernels.
"""

import hashlib
import json
import os
import pathlib

FORMAT = 3
HEADER_BYTES = 1 << 16  # of a weight file; a safetensors header lies there
PAGES, PAGE_BYTES = 64, 4096  # of the rest
CONFIGS = ("config.json", "adapter_config.json")
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")


def _sample(file, size):
    """Hash of a weight file's beginning and of pages that lie all over it."""
    sample = hashlib.sha256()
    with file.open("rb") as stream:
        sample.update(stream.read(HEADER_BYTES))
        for number in range(1, PAGES + 1):
            stream.seek(size * number // (PAGES + 1))
            sample.update(stream.read(PAGE_BYTES))
    return sample.hexdigest()


def _files(folder):
    """Files that decide what a model or an adapter computes, or None: there is no such folder."""
    path = pathlib.Path(folder)
    if not path.is_dir():
        return None
    return [f for f in sorted(path.iterdir()) if f.name in CONFIGS or f.suffix in WEIGHTS]


def describe_files(folder):
    """{file: [size, hash of a sample]} of a model's or an adapter's configuration and weights."""
    files, found = _files(folder), {}
    if files is None:
        return {"name": str(folder)}
    for file in files:
        size = os.stat(file).st_size
        whole = file.name in CONFIGS
        found[file.name] = [size, hashlib.sha256(file.read_bytes()).hexdigest() if whole else _sample(file, size)]
    return found


class Adapters:
    """What is mixed into the names of chunks that a LoRA adapter computed. The engine's hashes cover its name and
    path; files that were replaced there are another adapter."""

    MOST = 1024

    def __init__(self):
        self.seen = {}  # path -> (sizes and times of its files, digest)

    def mixed_of(self, path):
        """32 bytes for the adapter that lies at a path now; what cannot be read is like no other."""
        try:
            return self._look(path)
        except OSError:
            return os.urandom(32)

    def _look(self, path):
        files = _files(path) or []
        state = [os.stat(f) for f in files]
        state = tuple((f.name, s.st_size, s.st_mtime_ns) for f, s in zip(files, state, strict=True))
        known = self.seen.get(path)
        if known is None or known[0] != state:
            if len(self.seen) >= self.MOST:
                self.seen.clear()
            text = json.dumps(describe_files(path), sort_keys=True)
            known = self.seen[path] = (state, hashlib.sha256(text.encode()).digest())
        return known[1]


def make(parts):
    """Hex digits of the fingerprint over a dictionary of JSON values."""
    text = json.dumps({"kvtier": FORMAT, **parts}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def key_rank(rank, tensor_parallel, heads):
    """The rank that a rank's chunks are named by: the first of those that hold the same heads. heads: KV heads of the
    model, 1 where all ranks hold the same latent vectors (MLA)."""
    copies = max(1, tensor_parallel // max(1, heads))
    return rank // copies * copies
