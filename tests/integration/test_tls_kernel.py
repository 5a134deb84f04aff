"""TLS records that the kernel makes (tls.kernel): the same bytes and ends as OpenSSL's; without such a kernel, too."""

import contextlib
import random
import select
import signal
import socket
import subprocess
import time

import pytest

from rig import tls
from rig.client import CHAT, chat_body
from rig.router import PROGRAM, write_config
from rig.tls import TlsClient, TlsWorker
from rig.wait import PATIENCE, until
from rig.wire import Closed

MIB = 1 << 20
TCP_ULP = 31
CONNECTIONS = "kvway_tls_kernel_connections_total"


def kernel_has_tls():
    with socket.socket() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        client.connect(listener.getsockname())
        try:
            client.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
        except OSError:
            return False
    return True


KERNEL = kernel_has_tls()
needs_kernel = pytest.mark.skipif(not KERNEL, reason="the kernel has no TLS (modprobe tls)")


@pytest.fixture
def front(kvway, local):
    def make(workers, config=None):
        keys = {"tls.certificate": str(local[0]), "tls.key": str(local[1]), "tls.kernel": "auto", **(config or {})}
        return tls.wait_up(kvway(workers, keys, up=False), workers)

    return make


def test_any_kernel_will_do(front, workers, trust):
    """Where the kernel has no TLS, OpenSSL makes the records, and the log says so once."""
    served = workers(1)
    router = front(served)
    for _ in range(3):
        with TlsClient(router.port, trust) as client:
            assert client.ask("POST", CHAT, body=chat_body()).status == 200
    assert (router.metric(CONNECTIONS) >= 3) == KERNEL
    assert router.log().count("the kernel makes no TLS records") == (0 if KERNEL else 1)


def test_check_says_what_this_kernel_lacks(tmp_path):
    path = tmp_path / "kvway.yaml"
    write_config(path, {"upstream.tls.kernel": "auto", "workers": [{"url": "http://127.0.0.1:1"}]})
    check = subprocess.run([PROGRAM, "check", "-c", path], capture_output=True, text=True)
    assert check.returncode == 0
    assert ("upstream.tls.kernel: this kernel makes no TLS records" in check.stderr) != KERNEL


@needs_kernel
@pytest.mark.parametrize("suite", ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"])
def test_both_sides(front, local, authority, trust, suite):
    sent = random.Random(3).randbytes(3 * MIB)
    worker = TlsWorker(local, lambda ex: ex.respond(body=ex.body[::-1]))
    try:
        router = front([worker], {"upstream.tls.ca_file": str(authority.cert), "upstream.tls.kernel": "auto",
                                  "tls.ciphersuites": suite})  # fmt: skip
        with TlsClient(router.port, trust) as client:
            before = router.metric(CONNECTIONS)
            assert client.sock.cipher()[0] == suite
            for size in (0, 1, 100, 16384, 16385, 100000, len(sent)):
                assert client.ask("POST", "/opaque", body=sent[:size]).body == sent[:size][::-1]
        assert router.metric(CONNECTIONS) > before
        router.wait_idle()
    finally:
        worker.stop()
    assert not worker.failures


@needs_kernel
def test_the_end_arrives_however_late_it_is_read(front, workers, trust):
    """The answer is out and the connection closed while its end waits in the kernel: where TCP's buffer was full there may
    be a record that was taken and not sent. Small buffers (net.ipv4.tcp_wmem) make that likely."""
    body = random.Random(4).randbytes(100000)
    (worker,) = workers(1)
    worker.script = lambda ex: ex.respond(body=body[: int(ex.headers.get("x-n"))])
    router = front([worker])
    for size in range(14000, len(body), 2000):
        with TlsClient(router.port, trust, receive_buffer=8192, timeout=60) as client:
            client.send_head("GET", "/opaque", [("Connection", "close"), ("x-n", str(size))])
            time.sleep(0.1)
            assert client.read("GET").body == body[:size], size
    router.wait_idle()


@needs_kernel
def test_the_end_arrives_though_the_process_ends(front, workers, trust):
    """What the kernel has yet to seal would end with its process, unlike what waits in TCP: with small buffers
    (net.ipv4.tcp_wmem), some answers."""
    body = random.Random(5).randbytes(100000)
    (worker,) = workers(1)
    worker.script = lambda ex: ex.respond(body=body[: int(ex.headers.get("x-n"))])
    router = front([worker], {"drain.settle": "0s", "drain.timeout": "100ms"})
    clients = {}
    for size in range(14000, 50000, 800):
        clients[size] = TlsClient(router.port, trust, receive_buffer=8192, timeout=60)
        clients[size].send_head("GET", "/opaque", [("Connection", "close"), ("x-n", str(size))])
    time.sleep(0.5)
    running = router.metric("kvway_client_connections")  # these answers are not yet the kernel's, and will be cut
    router.signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        router.wait(1)
    cut = []
    for size, client in clients.items():
        with client:
            try:
                assert client.read("GET").body == body[:size], size
            except (OSError, Closed):
                cut.append(size)
    assert len(cut) <= running < len(clients), cut
    assert router.wait() == 0


class Talk:
    """`openssl s_client`, which can change keys: lines for it, and what has come back."""

    def __init__(self, router, authority):
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{router.port}", "-CAfile", str(authority.cert)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.back = b""

    def say(self, text):
        try:
            self.process.stdin.write(text)
            self.process.stdin.flush()
        except BrokenPipeError:  # the connection has ended
            return
        time.sleep(0.2 * PATIENCE)  # it looks at each piece that it reads, not at each line

    def hear(self, what):
        """False: the connection has ended without it."""
        while what not in self.back:
            assert select.select([self.process.stdout], [], [], 10 * PATIENCE)[0], self.back
            piece = self.process.stdout.read1(4096)
            if not piece:
                return False
            self.back += piece
        self.back = self.back.split(what, 1)[1]
        return True

    def end(self):
        self.process.kill()
        self.process.communicate()


ASK = b"GET /opaque HTTP/1.1\r\nHost: x\r\n\r\n"


@needs_kernel
def test_new_keys_of_the_client(front, workers, authority):
    """The client may change its own keys at any time. That we change ours, which it may ask for, is beyond the kernel:
    the connection ends before a byte is sent that it could not read."""
    (worker,) = workers(1)
    worker.script = lambda ex: ex.respond(body=b"here it is")
    router = front([worker], {"log.level": "debug"})
    talk = Talk(router, authority)
    try:
        for change in (b"k\n", b"k\n", None):
            talk.say(ASK)
            assert talk.hear(b"here it is"), talk.back
            if change:
                talk.say(change)
                assert talk.hear(b"KEYUPDATE"), talk.back
        talk.say(b"K\n")
        talk.say(ASK)
        assert not talk.hear(b"here it is")
        until(lambda: "which the kernel does not change" in router.log(), 5)
    finally:
        talk.end()
    router.wait_idle()
