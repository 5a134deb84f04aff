"""A simulated `lmcache server` with a shared L2: it stores chunks as a file system would, deletes what its
coordinator asks for, and reports both."""

import collections
import http.server
import json
import threading
import urllib.parse

from rig.lmcache_server import LMCacheServer


class SharedL2:
    """Keys and sizes of a file system that several nodes mount."""

    def __init__(self):
        self.lock, self.sizes, self.most, self.sums = threading.Lock(), {}, 0, collections.Counter()

    def put(self, key, size):
        self.drop(key)
        with self.lock:
            self.sizes[json.dumps(key, sort_keys=True)] = size
            self.sums[key["cache_salt"]] += size
            self.most = max(self.most, self.sums.total())

    def drop(self, key):
        with self.lock:
            size = self.sizes.pop(json.dumps(key, sort_keys=True), None)
            self.sums[key["cache_salt"]] -= size or 0
            return size

    def used(self, salt=None):
        with self.lock:
            return self.sums.total() if salt is None else self.sums[salt]

    def has(self, key):
        with self.lock:
            return json.dumps(key, sort_keys=True) in self.sizes


class LMCacheNode(LMCacheServer):
    """A server with an HTTP address. `fault`: "refuse" answers 500, "garbage" no JSON, "flood" 2 MiB, "deny"
    that it did not delete, "lie" without deleting, "mute" without reporting, "hang" nothing until `released`;
    "loading" that a prefetch goes on, "empty" that it loaded nothing."""

    def __init__(self, address, *args, l2=None, **more):
        super().__init__(address, *args, **more)
        self.l2, self.fault, self.asked, self.guard = l2, None, [], threading.Lock()
        self.lists = False  # as S3's adapter does
        self.released = threading.Event()
        node = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                status, answer = node.serve(self.command, self.path, json.loads(body) if body else None)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = serve

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,))
        self.thread.start()

    def register(self, **more):
        return super().register(port=self.http.server_address[1], **more)

    def serve(self, method, path, body):
        self.asked.append((method, path, body))
        if self.fault == "hang":
            self.released.wait()
        faults = {
            "refuse": (500, {"detail": "no"}), "garbage": (200, b"<html>"), "flood": (200, b" " * (2 << 20)),
            "deny": (200, {"deleted": 0, "skipped": 0, "ok": False, "error": "disk"}),
        }  # fmt: skip
        if self.fault in faults:
            return faults[self.fault]
        if (method, path) == ("DELETE", "/cache/objects"):
            return self.delete_objects(body)
        if (method, path) == ("POST", "/cache/prefetches"):
            chunks = len(body["token_ids"]) // self.chunk
            if chunks == 0:
                return 202, {"chunks": 0, "status": "noop"}
            return 202, {"request_id": "r-1", "chunks": chunks, "status": "submitted"}
        if (method, path) == ("GET", "/cache/prefetches/r-1"):
            if self.fault == "loading":
                return 200, {"request_id": "r-1", "status": "pending"}
            found = 0 if self.fault == "empty" else 1
            return 200, {"request_id": "r-1", "status": "completed", "found_keys": found, "total_keys": 1}
        if method == "GET" and path.startswith("/cache/objects?"):
            return self.list_objects(path)
        return 404, {"detail": "unknown request_id"}

    def list_objects(self, path):
        query = urllib.parse.parse_qs(urllib.parse.urlparse(path).query)
        if not self.lists:
            return 503, {"detail": "L2 adapter 'fs' does not support listing"}
        assert query["tier"] == ["l2"] and int(query["page_size"][0]) <= 1000
        at = int(query.get("page_token", ["p/0"])[0][2:])
        with self.l2.lock:
            rows = [{"key": json.loads(key), "size_bytes": size} for key, size in self.l2.sizes.items()]
        more = f"p/{at + 7}" if at + 7 < len(rows) else None
        return 200, {"adapter": "fs", "shared": True, "entries": rows[at : at + 7], "next_page_token": more}

    def delete_objects(self, body):
        assert len(body["keys"]) <= 10000
        if self.fault != "lie":
            gone = [{"key": key} for key in body["keys"] if self.l2 is None or self.l2.drop(key) is not None]
            if gone and self.fault != "mute" and body.get("tier", "l2") != "l1":
                self.report("delete", gone, tier="l2", backend="fs", shared=True)
        return 200, {"deleted": len(body["keys"]), "skipped": 0, "ok": True}

    def report(self, kind, entries, **place):
        with self.guard:
            self.send(self.batch(kind, entries, **place))

    def write(self, tokens, salt="", size=1000):
        """Stores a prompt's chunks in the shared L2."""
        entries = self.entries(tokens, known=False, salt=salt, size=size)
        for entry in entries:
            self.l2.put(entry["key"], size)
        self.report("store", entries, tier="l2", backend="fs", shared=True)

    def close(self):
        self.released.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()
