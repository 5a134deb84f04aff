"""A small API server of Kubernetes: pods and EndpointSlices, listed and watched, and a switchboard of faults.

It keeps to what clients may rely on: one resourceVersion that grows with every change, lists in pages of one
snapshot with `continue`, watches that begin after a version and say ADDED, MODIFIED or DELETED by what the
selector saw before and sees now, bookmarks if they were asked for, a Status object with every error. Whether it
does, test_kubernetes_clients.py asks kubectl and the Python client.

    api.pod("a", "127.0.0.2")            a ready pod
    api.change("a", lambda pod: ...)     any change of it
    api.delete("a")
    api.scale("deployments/vllm", 0)     what PATCH of its `scale` changes

Faults are attributes, which may be set at any time; `fail` answers the next requests with a status.
"""

import base64
import bisect
import copy
import json
import random
import re
import socket
import ssl
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

VERSIONS = {"Pod": "v1", "EndpointSlice": "discovery.k8s.io/v1"}
KINDS = {"/api/v1 pods": "Pod", "/apis/discovery.k8s.io/v1 endpointslices": "EndpointSlice"}
# /api/v1/pods, /api/v1/namespaces/NAMESPACE/pods, /api/v1/namespaces/NAMESPACE/pods/NAME
PATH = re.compile(r"^(/api/v1|/apis/[^/]+/v1)(?:/namespaces/([^/]+))?/(pods|endpointslices)(?:/([^/]+))?$")
SCALES = re.compile(r"^/apis/apps/v1/namespaces/([^/]+)/(deployments|statefulsets)/([^/]+)/scale$")
REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired", 429: "TooManyRequests"}
TRUE = ("1", "t", "T", "true", "True", "TRUE")  # as Go reads a truth value
TOO_OLD = "The provided continue parameter is too old to display a consistent list result."


def resources(group, name, kind, short):
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group,
        "resources": [
            {"name": name, "singularName": kind.lower(), "namespaced": True, "kind": kind, "shortNames": short,
             "verbs": ["get", "list", "watch"]}
        ],
    }  # fmt: skip


DISCOVERY_GROUP = {"groupVersion": "discovery.k8s.io/v1", "version": "v1"}
# What there is, as kubectl asks before anything else.
PAGES = {
    "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {"name": "discovery.k8s.io", "versions": [DISCOVERY_GROUP], "preferredVersion": DISCOVERY_GROUP}
        ],
    },
    "/api/v1": resources("v1", "pods", "Pod", ["po"]),
    "/apis/discovery.k8s.io/v1": resources("discovery.k8s.io/v1", "endpointslices", "EndpointSlice", []),
}


def status(code, message, **metadata):
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": metadata,
        "status": "Failure",
        "message": message,
        "reason": REASONS.get(code, "InternalError"),
        "code": code,
    }


def selects(selector, labels):
    """The grammar of `kubectl -l`, on valid texts."""
    for part in re.findall(r"(?:[^,(]|\([^)]*\))+", selector):
        part = part.strip()
        if match := re.fullmatch(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)", part):
            inside = labels.get(match[1], None) in [v.strip() for v in match[3].split(",")]
            good = inside == (match[2] == "in")
        elif "!=" in part:
            key, value = part.split("!=")
            good = labels.get(key.strip()) != value.strip()
        elif "=" in part:
            key, value = re.split("==?", part)
            good = labels.get(key.strip()) == value.strip()
        elif part.startswith("!"):
            good = part[1:].strip() not in labels
        else:
            good = part in labels
        if not good:
            return False
    return True


def pod_of(name, ip, labels=None, port=8000, ready=True, namespace="default", annotations=None):
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": str(uuid.uuid4()),
            "labels": {"app": "vllm", **(labels or {})},
            "annotations": annotations or {},
            "creationTimestamp": "2026-11-26T09:00:00Z",
        },
        "spec": {
            "containers": [
                {"name": "side"},
                {"name": "vllm", "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}]},
            ]
        },
        "status": {
            "phase": "Running",
            "podIP": ip,
            "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "Ready", "status": "True" if ready else "False"},
            ],
        },
    }


def set_ready(pod, ready):
    pod["status"]["conditions"][1]["status"] = "True" if ready else "False"


def slice_of(name, service, pods, port=8000, namespace="default"):
    """Of pods as pod_of makes them."""
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": str(uuid.uuid4()),
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [pod["status"]["podIP"]],
                "conditions": {
                    "ready": pod["status"]["conditions"][1]["status"] == "True",
                    "serving": True,
                    "terminating": "deletionTimestamp" in pod["metadata"],
                },
                "targetRef": {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]},
            }
            for pod in pods
        ],
    }


class Query:
    """What a request asks for."""

    def __init__(self, parts):
        self.options = {k: v[0] for k, v in parse_qs(parts.query).items()}
        match = PATH.match(parts.path)
        self.kind = KINDS.get(f"{match[1]} {match[3]}") if match else None
        self.namespace, self.name = (match[2], match[4]) if match else (None, None)
        self.labels = self.options.get("labelSelector", "")
        self.fields = self.options.get("fieldSelector", "")
        self.watch = self.options.get("watch") in TRUE

    def what(self):
        """The words by which Api.fail means this request."""
        return {"any", "watch"} if self.watch else {"any", "list", *(["page"] if "continue" in self.options else [])}

    def wants(self, obj):
        meta = obj["metadata"]
        if self.namespace not in (None, meta["namespace"]) or not selects(self.labels, meta["labels"]):
            return False
        return all(meta.get(field.removeprefix("metadata.")) == value for field, value in self.pairs())

    def pairs(self):
        """[(field, value)] of the field selector; ValueError: one that this server does not know."""
        pairs = [re.split("==?", part, maxsplit=1) for part in self.fields.split(",") if part]
        if any(pair[0] not in ("metadata.name", "metadata.namespace") for pair in pairs):
            raise ValueError(f"field label not supported: {self.fields}")
        return pairs


def key_of(obj):
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        try:
            self.server.api.answer(self)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError, socket.timeout):
            self.close_connection = True

    do_PATCH = do_GET


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    context = None

    def get_request(self):
        sock, peer = super().get_request()
        self.api.sockets.append(sock)
        return sock, peer

    def finish_request(self, request, client_address):
        if self.context is not None:
            try:
                request.settimeout(10)
                request = self.context.wrap_socket(request, server_side=True)
                request.settimeout(None)
            except (OSError, ssl.SSLError):
                self.api.handshakes_failed += 1
                return
            self.api.sockets.append(request)
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        pass


class Api:
    def __init__(self, context=None, port=0):
        self.lock = threading.Condition()
        self.version = random.randrange(1000, 100000)
        self.objects = {}  # (kind, namespace, name): object
        self.history = []  # (version, kind, namespace, before, after)
        self.snapshots = {}  # version: [objects], of lists under way
        self.context = context
        self.port = port
        self.sockets = []
        self.handshakes_failed = 0
        # What it was asked.
        self.lists = self.watches = self.pages = 0
        self.watching = 0  # now
        self.queries = []
        self.scales = {}  # (namespace, "deployments/NAME"): [replicas, version]
        self.patches = []  # (namespace, "deployments/NAME", body)
        # Switches.
        self.token = None  # else the bearer token that it wants
        self.bookmark_s = 0.2
        self.floor = 0  # versions below are compacted: 410
        self.gone_as = "event"  # or "status"
        self.silent = False  # a watch says nothing, not even bookmarks
        self.drop = set()  # types of events that are never said
        self.swap = False  # each event comes after the one that follows it
        self.cut = 0  # so many events end in their middle, with the connection
        self.slow_s = 0  # before each answer
        self.trickle = False  # events come in small pieces
        self.page_most = None  # fewer objects in a page than asked for
        self.failures = []  # (list, watch or any; status; headers)
        self.start()

    # --- life ---

    def start(self):
        """Again on the same port after stop()."""
        self.server = Server(("127.0.0.1", self.port), Handler)
        self.server.api = self
        self.server.context = self.context
        self.port = self.server.server_address[1]
        self.stopped = False
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        """As if it were gone: connections are cut, new ones are refused."""
        if self.stopped:
            return
        self.stopped = True
        self.server.shutdown()
        self.server.server_close()
        self.cut_all()

    def cut_all(self):
        """Watches and lists under way."""
        with self.lock:
            sockets, self.sockets = self.sockets, []
            self.lock.notify_all()
        for sock in sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    @property
    def url(self):
        return f"http{'s' if self.context else ''}://127.0.0.1:{self.port}"

    def fail(self, what, code, times=1, headers=()):
        with self.lock:
            self.failures += [(what, code, headers)] * times

    # --- state ---

    def put(self, obj):
        """A new object, or a new state of one."""
        kind = obj["kind"]
        meta = obj["metadata"]
        key = (kind, meta["namespace"], meta["name"])
        with self.lock:
            self.version += 1
            meta["resourceVersion"] = str(self.version)
            before = self.objects.get(key)
            self.objects[key] = copy.deepcopy(obj)
            self.history.append((self.version, kind, meta["namespace"], before, self.objects[key]))
            self.lock.notify_all()
        return obj

    def pod(self, name, ip, **options):
        return self.put(pod_of(name, ip, **options))

    def get(self, name, kind="Pod", namespace="default"):
        with self.lock:
            return copy.deepcopy(self.objects[kind, namespace, name])

    def change(self, name, how, kind="Pod", namespace="default"):
        obj = self.get(name, kind, namespace)
        how(obj)
        return self.put(obj)

    def delete(self, name, kind="Pod", namespace="default"):
        with self.lock:
            before = self.objects.pop((kind, namespace, name))
            self.version += 1
            last = copy.deepcopy(before)
            last["metadata"]["resourceVersion"] = str(self.version)
            self.history.append((self.version, kind, namespace, last, None))
            self.lock.notify_all()

    def scale(self, name, replicas, namespace="default"):
        with self.lock:
            self.version += 1
            self.scales[namespace, name] = [replicas, self.version]

    def replicas(self, name, namespace="default"):
        return self.scales[namespace, name][0]

    def compact(self):
        """Watches from any earlier version are 410."""
        with self.lock:
            self.version += 1
            self.floor = self.version
            self.history = []
            self.snapshots = {}

    def forget(self, version=None):
        """Another state of the world: as after a restore from a backup."""
        with self.lock:
            self.objects = {}
            self.history = []
            self.snapshots = {}
            self.version = version or self.version + 1
            self.floor = self.version

    def ready(self, selector="app=vllm", port="http"):
        """{url: uid} of what should be workers."""
        found = {}
        with self.lock:
            for (kind, _, _), pod in self.objects.items():
                meta, state = pod["metadata"], pod.get("status", {})
                if (
                    kind != "Pod"
                    or not state.get("podIP")
                    or "deletionTimestamp" in meta
                    or state["phase"] != "Running"
                    or state["conditions"][1]["status"] != "True"
                    or not selects(selector, meta["labels"])
                ):
                    continue
                number = pod["spec"]["containers"][1]["ports"][0]["containerPort"] if port == "http" else port
                found[f"http://{state['podIP']}:{number}"] = meta["uid"]
        return found

    # --- answers ---

    def answer(self, request):
        parts = urlsplit(request.path)
        query = Query(parts)
        with self.lock:
            self.queries.append((parts.path, query.options))
        if self.slow_s:
            time.sleep(self.slow_s)
        scale = SCALES.match(parts.path)
        if scale:
            self.answer_scale(request, scale)
            return
        failure = self.next_failure(query) if query.kind else None
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            self.say_status(request, 401, "Unauthorized")
        elif failure is not None:
            self.say_status(request, failure[1], "a fault of the test", failure[2])
        elif parts.path in PAGES:
            self.say(request, 200, PAGES[parts.path])
        elif query.kind is None:
            self.say_status(request, 404, "the server could not find the requested resource")
        elif query.name is not None:
            self.one(request, query)
        else:
            try:
                query.pairs()
                (self.watch if query.watch else self.list)(request, query)
            except ValueError as error:
                self.say_status(request, 400, str(error))

    def answer_scale(self, request, match):
        namespace, name = match[1], f"{match[2]}/{match[3]}"
        body = json.loads(request.rfile.read(int(request.headers.get("Content-Length", 0))) or b"{}")
        with self.lock:
            what = "patch" if request.command == "PATCH" else "scale"
            failure = next((f for f in self.failures if f[0] == what), None)
            if failure is not None:
                self.failures.remove(failure)
        found = self.scales.get((namespace, name))
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            self.say_status(request, 401, "Unauthorized")
        elif failure is not None:
            self.say_status(request, failure[1], "a fault of the test", failure[2])
        elif found is None:
            self.say_status(request, 404, f'{match[2]}.apps "{match[3]}" not found')
        elif request.command == "PATCH":
            assert request.headers["Content-Type"] == "application/merge-patch+json"
            with self.lock:
                self.patches.append((namespace, name, body))
                good = body["metadata"].get("resourceVersion", str(found[1])) == str(found[1])
            if not good:
                self.say_status(request, 409, "the object has been modified")
                return
            self.scale(name, body["spec"]["replicas"], namespace)
            self.say_scale(request, namespace, match[3], *self.scales[namespace, name])
        else:
            self.say_scale(request, namespace, match[3], *found)

    def say_scale(self, request, namespace, name, replicas, version):
        """Kubernetes leaves `replicas` out where it is 0."""
        meta = {"name": name, "namespace": namespace, "resourceVersion": str(version)}
        spec = {"replicas": replicas} if replicas else {}
        self.say(
            request,
            200,
            {
                "kind": "Scale",
                "apiVersion": "autoscaling/v1",
                "metadata": meta,
                "spec": spec,
                "status": {"replicas": 0, "selector": "app=vllm"},
            },
        )

    def next_failure(self, query):
        with self.lock:
            for i, failure in enumerate(self.failures):
                if failure[0] in query.what():
                    return self.failures.pop(i)
        return None

    def say(self, request, code, body, headers=()):
        data = json.dumps(body).encode() + b"\n"
        request.send_response(code)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(data)

    def say_status(self, request, code, message, headers=()):
        self.say(request, code, status(code, message), headers)

    def one(self, request, query):
        with self.lock:
            obj = self.objects.get((query.kind, query.namespace, query.name))
        if obj is None:
            plural = f"{query.kind.lower()}s"
            self.say(request, 404, {
                **status(404, f'{plural} "{query.name}" not found'),
                "details": {"name": query.name, "kind": plural},
            })  # fmt: skip
        else:
            self.say(request, 200, obj)

    def current(self, kind):
        """Objects of a kind, which nothing changes any more."""
        return [obj for key, obj in sorted(self.objects.items()) if key[0] == kind]

    def token_of(self, version, start):
        token = {"v": "meta.k8s.io/v1", "rv": version, "start": start}
        return base64.urlsafe_b64encode(json.dumps(token).encode()).decode()

    def place(self, request, query):
        """(version, objects, those up to which key were said already) of a page; None: it was refused."""
        if "continue" not in query.options:
            self.lists += 1
            return self.version, self.current(query.kind), ""
        try:
            token = json.loads(base64.urlsafe_b64decode(query.options["continue"]))
        except ValueError as error:
            raise ValueError(f"continue key is not valid: {error}") from error
        if token["rv"] < 0:  # what is there now
            return self.version, self.current(query.kind), token["start"]
        objects = self.snapshots.get((token["rv"], query.kind))
        if objects is None:
            again = {"continue": self.token_of(-1, token["start"])}
            self.say(request, 410, status(410, TOO_OLD, **again))
            return None
        return token["rv"], objects, token["start"]

    def list(self, request, query):
        limit = int(query.options.get("limit", 0))
        if self.page_most:
            limit = min(limit or self.page_most, self.page_most)
        with self.lock:
            self.pages += 1
            place = self.place(request, query)
            if place is None:
                return
            version, objects, start = place
            left = [obj for obj in objects if key_of(obj) > start and query.wants(obj)]
            page = left[:limit] if limit else left
            meta = {"resourceVersion": str(version)}
            if len(page) < len(left):
                self.snapshots = dict(list(self.snapshots.items())[-8:])
                self.snapshots[version, query.kind] = objects
                meta["continue"] = self.token_of(version, key_of(page[-1]))
                if not query.labels and not query.fields:
                    meta["remainingItemCount"] = len(left) - len(page)
        items = [{k: v for k, v in obj.items() if k not in ("kind", "apiVersion")} for obj in page]
        group = VERSIONS[query.kind]
        self.say(request, 200, {"kind": f"{query.kind}List", "apiVersion": group, "metadata": meta, "items": items})

    # --- watches ---

    def events_after(self, version, query):
        """[(version, event)], as a client with these selectors sees them."""
        events = []
        first = bisect.bisect_right(self.history, version, key=lambda event: event[0])
        for at, kind, _, before, after in self.history[first:]:
            if kind != query.kind:
                continue
            was = before is not None and query.wants(before)
            there = after is not None and query.wants(after)
            if not was and not there:
                continue
            name = "MODIFIED" if was and there else "ADDED" if there else "DELETED"
            obj = after if there else copy.deepcopy(before)
            if not there:
                obj["metadata"]["resourceVersion"] = str(at)
            events.append((at, {"type": name, "object": obj}))
        return events

    def watch(self, request, query):
        version = int(query.options.get("resourceVersion") or 0)
        with self.lock:
            self.watches += 1
            there = [obj for obj in self.current(query.kind) if query.wants(obj)] if version == 0 else []
            version = version or self.version
            gone = version < self.floor
        if gone and self.gone_as == "status":
            self.say_status(request, 410, "too old resource version")
            return
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.close_connection = True
        if gone:
            self.event(request, {"type": "ERROR", "object": status(410, f"too old resource version: {version}")})
            request.wfile.write(b"0\r\n\r\n")
            return
        with self.lock:
            self.watching += 1
        try:
            for obj in there:
                self.event(request, {"type": "ADDED", "object": obj})
            self.watch_on(request, version, query)
        finally:
            with self.lock:
                self.watching -= 1

    def watch_on(self, request, version, query):
        server = self.server
        marks = query.options.get("allowWatchBookmarks") in TRUE
        marked = time.monotonic()
        ends = marked + float(query.options.get("timeoutSeconds") or "inf")
        while not self.stopped and server is self.server:
            if time.monotonic() >= ends:
                request.wfile.write(b"0\r\n\r\n")
                return
            with self.lock:
                events = [] if self.silent else self.events_after(version, query)
                now = self.version
                if not events or (self.swap and len(events) < 2 and time.monotonic() - marked < self.bookmark_s):
                    self.lock.wait(0.02)
                    events, now = [], version
            if self.swap and len(events) > 1:
                events[0], events[1] = events[1], events[0]
            for at, event in events:
                if event["type"] not in self.drop:
                    self.event(request, event)
                version = max(version, at)
            if marks and not events and not self.silent and time.monotonic() - marked > self.bookmark_s:
                marked = time.monotonic()
                version = max(version, now) if not self.swap else version
                meta = {"resourceVersion": str(version), "creationTimestamp": None}
                obj = {"kind": query.kind, "apiVersion": VERSIONS[query.kind], "metadata": meta}
                self.event(request, {"type": "BOOKMARK", "object": obj})

    def event(self, request, event):
        line = json.dumps(event).encode() + b"\n"
        if self.cut > 0 and event["type"] not in ("BOOKMARK", "ERROR"):
            self.cut -= 1
            half = line[: len(line) // 2]
            request.wfile.write(b"%x\r\n%s\r\n" % (len(half), half))
            request.wfile.flush()
            raise ConnectionResetError("cut by the test")
        size = 37 if self.trickle else len(line)
        for start in range(0, len(line), size):
            piece = line[start : start + size]
            request.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        request.wfile.flush()
