"""Proxies in front: whose word about a client counts, the PROXY protocol, and fields that clients invent."""

import json
import socket
import ssl
import struct
import subprocess

import pytest
from rig.client import CHAT, chat_body
from rig.router import PROGRAM
from rig.tls import Authority, client_context
from rig.wait import PATIENCE, until

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
BODY = json.dumps(chat_body()).encode()


def v1(address="192.0.2.7", port=56324):
    family = "TCP6" if ":" in address else "TCP4"
    return f"PROXY {family} {address} {'::1' if family == 'TCP6' else '10.0.0.1'} {port} 443\r\n".encode()


def v2(address="192.0.2.8", command=1, more=b""):
    family, packed = (0x21, socket.inet_pton(socket.AF_INET6, address)) if ":" in address else (0x11, socket.inet_aton(address))
    rest = packed + bytes(len(packed)) + struct.pack(">HH", 1000, 443) + more
    return SIGNATURE + bytes([0x20 | command, family]) + struct.pack(">H", len(rest)) + rest


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def v2_summed(address, wrong=0):
    blank = v2(address, more=b"\x03\x00\x04" + bytes(4))
    return blank[:-4] + struct.pack(">I", crc32c(blank) ^ wrong)


class Stage:
    def __init__(self, tmp_path, workers, kvway, config):
        (self.worker,) = workers(1)
        self.access = tmp_path / "access.log"
        self.asked = 0
        self.router = kvway([self.worker], {"log.access": str(self.access), **config}, up=False)
        until(lambda: self.ready(), 15, "kvway up")

    def ready(self):
        assert self.router.alive(), self.router.log()
        try:
            return "listens on" in self.router.log() and bool(self.router.models())
        except OSError:
            return False

    def talk(self, *parts, fields=(), tls=None):
        """The status of a request behind these bytes, sent one by one; 0: closed without an answer."""
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(BODY)}\r\n".encode()
        self.asked += 1
        head += f"X-Request-Id: {self.asked}\r\n".encode()
        head += b"".join(f"{name}: {value}\r\n".encode() for name, value in fields) + b"\r\n"
        with socket.create_connection(("127.0.0.1", self.router.port), 20) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                for part in parts:
                    sock.sendall(part)
                peer = tls.wrap_socket(sock, server_hostname="localhost") if tls else sock
                peer.sendall(head + BODY)
                line = peer.makefile("rb").readline()
            except (ConnectionError, ssl.SSLError):
                return 0
            return int(line.split()[1]) if line else 0

    def clients(self):
        """Of the access log, which ends with the router, in the order of the requests."""
        self.router.stop()
        lines = [json.loads(line) for line in self.access.read_text().splitlines()]
        lines = [line for line in lines if line.get("path") == CHAT]
        return [line["client"] for line in sorted(lines, key=lambda line: int(line["request_id"]))]

    def refused(self):
        return self.router.metric("kvway_proxy_protocol_refused_total")


@pytest.fixture
def stage(tmp_path, workers, kvway):
    return lambda config: Stage(tmp_path, workers, kvway, config)


HERE = {"proxies.trusted": ["127.0.0.0/8"]}


def test_the_header_names_the_client(stage):
    made = stage({**HERE, "proxies.protocol": "accept"})
    headers = [v1(), v2(), v1("2001:db8::7"), v2("2001:db8::8"), v2_summed("192.0.2.9")]
    for header in headers:
        assert made.talk(header) == 200
    assert made.talk(*(bytes([byte]) for byte in v1("192.0.2.10"))) == 200
    assert made.talk(v2("192.0.2.1", command=0)) == 200  # LOCAL: the proxy's own
    assert made.talk(b"PROXY UNKNOWN\r\n") == 200
    assert made.talk() == 200  # none
    for bad in (b"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n", v2_summed("192.0.2.9", wrong=1), SIGNATURE + b"\x21\x11\x20\x00",
                b"PROXY UNKNOWN " + b"x" * 100):  # fmt: skip
        assert made.talk(bad) == 0
    assert made.refused() == 4
    ex = made.worker.requests[0]
    assert ex.headers.get("x-forwarded-for") == "192.0.2.7" and "for=192.0.2.7" in ex.headers.get("forwarded")
    assert made.clients() == ["192.0.2.7", "192.0.2.8", "2001:db8::7", "2001:db8::8", "192.0.2.9", "192.0.2.10",
                              "127.0.0.1", "127.0.0.1", "127.0.0.1"]  # fmt: skip


def test_required(stage):
    made = stage({**HERE, "proxies.protocol": "require", "timeouts.head": f"{300 * PATIENCE:.0f}ms"})
    assert made.talk(v2()) == 200
    assert made.talk() == 0
    assert made.refused() == 1
    with socket.create_connection(("127.0.0.1", made.router.port), 20) as sock:
        sock.sendall(v2()[:20])
        try:
            assert sock.recv(1) == b""  # no longer than timeouts.head
        except ConnectionResetError:
            pass
    until(lambda: made.router.metric("kvway_client_connections") == 0, 10, "nothing is left of it")
    assert made.clients() == ["192.0.2.8"]


def test_only_trusted_proxies_may_send_it(stage):
    made = stage({"proxies.trusted": ["192.0.2.0/24"], "proxies.protocol": "accept"})
    assert made.talk(v1()) == 400  # a request that cannot be read
    assert made.talk() == 200
    assert made.clients() == ["127.0.0.1"]  # what cannot be read has no path


def test_without_trusted_proxies_others_are_closed_where_it_is_required(stage):
    made = stage({"proxies.trusted": ["192.0.2.0/24"], "proxies.protocol": "require"})
    assert made.talk(v1()) == 0 and made.talk() == 0
    assert made.refused() == 2


def test_before_tls(stage, tmp_path):
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", "DNS:localhost")
    made = stage({**HERE, "proxies.protocol": "require", "tls.certificate": str(certificate), "tls.key": str(key)})
    context = client_context(authority)
    assert made.talk(v2(), tls=context) == 200
    assert made.talk(*(bytes([byte]) for byte in v1()), tls=context) == 200
    assert made.talk(tls=context) == 0
    assert made.clients() == ["192.0.2.8", "192.0.2.7"]


FORGED = [("X-Forwarded-For", "203.0.113.1"), ("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "evil"),
          ("X-Forwarded-Client-Cert", "Subject=admin"), ("Forwarded", "for=203.0.113.1"), ("X-Real-IP", "203.0.113.1"),
          ("Client-Cert", ":x:"), ("X-SSL-Client-Verify", "SUCCESS"), ("SSL-Client-Subject-DN", "CN=admin"),
          ("X-Client-Cert", "x"), ("x-forwarded-user", "root")]  # fmt: skip


def test_fields_that_clients_invent_end_here(stage):
    made = stage({"proxies.trusted": ["192.0.2.0/24"]})
    assert made.talk(fields=[*FORGED, ("X-Other", "stays")]) == 200
    (ex,) = made.worker.requests
    assert ex.headers.get("x-forwarded-for") == "127.0.0.1" and ex.headers.get("x-forwarded-proto") == "http"
    assert ex.headers.get("forwarded").startswith("for=127.0.0.1;proto=http")
    for forged in (b"203.0.113.1", b"evil", b"admin", b":x:", b"SUCCESS", b"root"):
        assert forged not in ex.raw_head
    assert ex.headers.get("x-other") == "stays"
    assert made.clients() == ["127.0.0.1"]


def test_a_client_behind_a_header_is_not_trusted_itself(stage):
    made = stage({**HERE, "proxies.protocol": "require"})
    assert made.talk(v1(), fields=FORGED) == 200
    (ex,) = made.worker.requests
    assert ex.headers.get("x-forwarded-for") == "192.0.2.7" and b"203.0.113.1" not in ex.raw_head
    assert made.clients() == ["192.0.2.7"]


def test_what_a_trusted_proxy_says_counts(stage):
    made = stage({"proxies.trusted": ["127.0.0.1", "10.0.0.0/8"]})
    cases = [("203.0.113.1, 198.51.100.2, 10.1.1.1", "198.51.100.2"), ("203.0.113.1", "203.0.113.1"),
             ("10.0.0.1,10.0.0.2", "10.0.0.1"), ("[2001:db8::5]:4711", "2001:db8::5"), ("198.51.100.2:80", "198.51.100.2"),
             ("198.51.100.3, nonsense", "127.0.0.1"), ("198.51.100.3, 10.0.0.1, unknown, 10.0.0.9", "10.0.0.9")]  # fmt: skip
    for value, _ in cases:
        assert made.talk(fields=[("X-Forwarded-For", value), ("Client-Cert", ":cert:")]) == 200
    assert made.talk(fields=[("X-Forwarded-For", "203.0.113.1"), ("X-Forwarded-For", "198.51.100.9")]) == 200
    for ex, (value, _) in zip(made.worker.requests, cases):
        assert ex.headers.get("x-forwarded-for") == f"{value}, 127.0.0.1" and ex.headers.get("client-cert") == ":cert:"
    assert made.clients() == [client for _, client in cases] + ["198.51.100.9"]


def test_without_a_list_fields_pass_as_they_come(stage):
    made = stage({})
    assert made.talk(fields=FORGED) == 200
    (ex,) = made.worker.requests
    assert ex.headers.get("x-forwarded-for") == "203.0.113.1, 127.0.0.1" and ex.headers.get("x-real-ip") == "203.0.113.1"
    assert made.clients() == ["127.0.0.1"]


def test_mistakes(tmp_path):
    path = tmp_path / "kvway.yaml"
    cases = [("trusted: [10.0.0.1/8]", 12, "proxies.trusted: found `10.0.0.1/8`, expected an address"),
             ("trusted: [proxy]", 12, "proxies.trusted: found `proxy`"),
             ("protocol: accept", 13, "proxies.protocol: found no `proxies.trusted`"),
             ("protocol: yes", 13, "proxies.protocol: found `yes`")]  # fmt: skip
    for line, column, expected in cases:
        path.write_text(f"workers:\n  - url: http://127.0.0.1:1\nproxies:\n  {line}\n")
        done = subprocess.run([PROGRAM, "check", "-c", path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and f"{path}:4:{column}: {expected}" in done.stderr, done.stderr
