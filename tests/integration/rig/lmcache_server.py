"""An LMCache server of the multi-process mode, as its coordinator sees it: registration, heartbeats
and events in the shapes of LMCache 0.5.6."""

import hashlib
import http.client
import json
import struct

from rig.blake3 import chunk_hash


def sha256_hash(before, tokens):
    return hashlib.sha256(before + struct.pack(f">{len(tokens)}I", *tokens)).digest()


class LMCacheServer:
    """server.store(tokens) reports chunks; chunk hashes are LMCache's in form, with blake3 in value."""

    def __init__(
        self, address, instance="mp-one", chunk=64, incarnation=1000, ranks=1, model="/models/m", blake3=False
    ):
        self.address, self.instance, self.chunk = address, instance, chunk
        self.incarnation, self.ranks, self.model = incarnation, ranks, model
        self.hash = chunk_hash if blake3 else sha256_hash
        self.seq = 0

    def ask(self, method, path, body=None, raw=None):
        """The status and the answer, as JSON where it is JSON."""
        connection = http.client.HTTPConnection(self.address, timeout=20)
        try:
            data = raw if raw is not None else None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            try:
                return answer.status, json.loads(text)
            except ValueError:
                return answer.status, text
        finally:
            connection.close()

    def register(self, ip="127.0.0.1", port=8080, **more):
        body = {"instance_id": self.instance, "ip": ip, "http_port": port, **more}
        status, answer = self.ask("POST", "/instances", body)
        assert status == 200, answer
        return answer

    def beat(self):
        return self.ask("PUT", f"/instances/{self.instance}/heartbeat", raw=b"")[0]

    def leave(self):
        return self.ask("DELETE", f"/instances/{self.instance}")[0]

    def restart(self):
        self.incarnation, self.seq = self.incarnation + 1, 0

    def batch(self, kind, entries=(), tier="l1", backend="dram", lost=False, **more):
        """The next batch; lost: only its number is used."""
        self.seq += 1
        return {
            "instance_id": self.instance, "incarnation": self.incarnation, "seq": self.seq,
            "event_type": kind, "tier": tier, "backend": backend, "entries": list(entries),
            "shared": False, "ts": 1795452129.07, "capacity_bytes": 0, "capacity_revision": 0, **more,
        }  # fmt: skip

    def send(self, *batches):
        status, answer = self.ask("POST", "/events", {"batches": list(batches)})
        assert status == 200, answer
        return answer

    def config(self, capacity=1 << 30, revision=1):
        return self.send(self.batch("config", capacity_bytes=capacity, capacity_revision=revision))

    def key(self, digest, rank=0, salt=""):
        kv_rank = self.ranks << 24 | rank << 16 | self.ranks << 8 | rank
        return {
            "chunk_hash_hex": digest.hex(), "model_name": self.model, "kv_rank": kv_rank,
            "object_group_id": 0, "cache_salt": salt,
        }  # fmt: skip

    def entries(self, tokens, known=True, salt="", size=4096, ranks=None):
        """A prompt's whole chunks, for each rank."""
        digest, found = b"", []
        for at in range(0, len(tokens) - self.chunk + 1, self.chunk):
            part = tokens[at : at + self.chunk]
            digest = self.hash(digest, part)
            for rank in range(self.ranks) if ranks is None else ranks:
                found.append(
                    {
                        "key": self.key(digest, rank, salt), "size_bytes": size,
                        "token_ids": part if known else [], "token_offset": at if known else -1,
                    }  # fmt: skip
                )
        return found

    def store(self, tokens, **more):
        return self.send(self.batch("store", self.entries(tokens, **more)))

    def delete(self, tokens, **more):
        entries = self.entries(tokens, known=False, size=0, **more)
        return self.send(self.batch("delete", entries))
