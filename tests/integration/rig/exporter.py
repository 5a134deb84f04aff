"""An exporter of metrics: a recorded page whose counters go on, by as much again with every scrape."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SAMPLE = re.compile(r"^([\w:]+)(?:\{(.*)\})? (\S+)$", re.M)
COUNTED = ("counter", "histogram")


def kinds(page):
    """{family: type}"""
    return dict(re.findall(r"^# TYPE (\S+) (\w+)$", page, re.M))


def family(name, known):
    """Of a sample's name."""
    return name if name in known else re.sub(r"_(bucket|sum|count)$", "", name)


def labels_of(page):
    """{name of a sample: its labels}"""
    return {name: set(re.findall(r'(\w+)="', labels)) for name, labels, _ in SAMPLE.findall(page)}


class Exporter:
    def __init__(self, *pages):
        self.page = "".join(pages)
        self.scrapes = 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                text = owner.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def text(self):
        self.scrapes += 1
        known = kinds(self.page)

        def gone_on(found):
            name, labels, value = found.groups()
            if known.get(family(name, known)) in COUNTED:
                value = float(value) * self.scrapes
            return f"{name}{{{labels or ''}}} {value}"

        return SAMPLE.sub(gone_on, self.page)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
