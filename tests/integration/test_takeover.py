"""A new kvway takes the sockets of a running one over: no client notices."""

import array
import contextlib
import os
import random
import re
import resource
import signal
import socket
import ssl
import stat
import time

import pytest

from rig import tls
from rig.client import CHAT, Client, ask, chat_body
from rig.takeover import SETTLE, Line, Load, Peer, drops, stream_of
from rig.tls import TlsClient
from rig.wait import PATIENCE, unused_port, until
from rig.wire import Closed

LONG = bool(os.environ.get("KVW_LONG"))
UPGRADES = 200 if LONG else 10
BROKEN = {
    "configuration": {"loops": "many"},
    "address": {"listen": "192.0.2.1:80"},
    "workers": {"workers": [{"url": "http://127.0.0.1:1"}]},
}


@pytest.fixture
def line(tmp_path, workers):
    """line(config, address=..., script=..., count=...): kvways that take over from each other."""
    made = []

    def make(config=None, script=None, count=2, **options):
        fleet = workers(count)
        for worker in fleet:
            worker.script = script or worker.script
        made.append(Line(tmp_path, fleet, config, **options))
        made[-1].first()
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_no_client_notices_upgrades_in_a_row(line):
    """Of each three new processes one is broken: by its configuration, its workers, or it dies with the sockets."""
    events, pause = 20, 0.05
    upgrades = line({"loops": 3, **SETTLE}, script=stream_of(events, pause))
    rate = {"streams": 64, "requesters": 25} if LONG else {"streams": 6, "requesters": 2}
    lost = drops()
    load = Load(upgrades.port, pause=0.05, events=events, **rate)
    dice = random.Random(1)
    try:
        for i in range(UPGRADES):
            if i % 3 == 1:
                break_one(upgrades, dice.choice([*BROKEN, "peer", "killed"]))
            upgrades.upgrade({"loops": dice.choice([1, 2, 3, 5])})
            time.sleep(0.2)
        until(lambda: load.streams >= rate["streams"], 60, "streams")
    finally:
        load.stop()
    assert not load.wrong, load.wrong[:20]
    assert load.requests > UPGRADES
    if LONG:  # the counters are the machine's: this run has it to itself
        assert drops() == lost
    for process in upgrades.made:
        if process is not upgrades.current:
            process.wait(80)


def break_one(upgrades, how):
    """A new process that does not get ready. The running one serves on."""
    before = upgrades.metric("kvway_takeover_failed_total")
    if how == "peer":
        peer = Peer(upgrades.socket)
        peer.take()
        peer.close()
        until(lambda: upgrades.metric("kvway_takeover_failed_total") == before + 1, 10, "counted")
    elif how == "killed":
        new = upgrades.start({"workers": [{"url": "http://192.0.2.1:80"}], "health.timeout": "20s"})
        until(lambda: "taking over" in new.log() or not new.alive(), 10, "sockets taken")
        new.signal(signal.SIGKILL)
        new.wait()
    else:
        new = upgrades.start(BROKEN[how])
        assert new.wait(60) == 1, new.log()
    assert upgrades.current.alive()


def test_idle_connections_live_on_until_their_next_request(line):
    """Its answer says `close`. kvway resets no client that has just sent something."""
    one = line({"drain.settle": "30s"})
    with Client(one.port) as kept, Client(one.port) as fresh:
        assert kept.ask("GET", "/x").headers.get("connection") != "close"
        until(fresh.accepted, 10, "a connection of the process that is replaced")
        before = one.upgrade({"drain.settle": "0s"})
        got = ask(one.port, "POST", CHAT, body=chat_body())
        assert (got.status, got.headers.get("connection")) == (200, None)
        for client in (kept, fresh):
            got = client.ask("POST", CHAT, body=chat_body())
            assert (got.status, got.headers.get("connection")) == (200, "close")
            assert client.closed_by_peer()
        assert before.wait(5) == 0


def test_clients_of_the_admin_address_that_have_connected_are_answered(line):
    one = line(SETTLE)
    with Client(one.admin_port) as fresh, Client(one.admin_port) as idle:
        until(lambda: fresh.accepted() and idle.accepted(), 10, "connections of the process that is replaced")
        before = one.upgrade()
        got = fresh.ask("GET", "/metrics")
        assert (got.status, got.headers.get("connection")) == (200, "close")
        assert "kvway_takeover_" in got.body.decode()
        assert before.wait(20 * PATIENCE) == 0  # after drain.settle
        assert idle.closed_by_peer()


def test_a_load_balancer_on_a_kept_connection_still_hears_ready(line):
    one = line(SETTLE)
    with Client(one.port) as kept:
        assert kept.ask("GET", "/ready").status == 200
        one.upgrade()
        assert kept.ask("GET", "/ready").status == 200


def test_the_admin_address_is_the_new_ones_alone(line):
    one = line()
    one.upgrade()
    adopted = lambda: one.metric("kvway_takeover_adopted_sockets") > 0  # the one before has adopted none
    until(lambda: all(adopted() for _ in range(20)), 5, "twenty answers in a row of the new one")
    assert one.metric("kvway_takeover_seconds") > 0
    assert one.metric("kvway_takeover_under_way") == 0


def test_addresses_that_differ_are_bound_and_dropped(line):
    one = line()
    other = unused_port()
    before = one.upgrade({"admin.listen": f"127.0.0.1:{other}"}, wait=False)
    until(lambda: "not adopted:" in one.current.log(), 5, "said what is not adopted")
    log = one.current.log()
    assert f"bound, not adopted use=admin address=127.0.0.1:{other}" in log
    assert f"does not listen there use=admin address=127.0.0.1:{one.admin_port}" in log
    until(lambda: refuses(one.admin_port), 5, "the address that no configuration names")
    assert ask(other, "GET", "/ready").status == 200
    assert before.wait(10) == 0
    one.admin_port = other


def refuses(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionRefusedError:
        return True
    return False


def test_ipv6(line):
    one = line(address="[::1]")
    one.upgrade()
    with contextlib.closing(socket.create_connection(("::1", one.port), 5)) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b" 200 " in sock.recv(4096)
    assert "adopted" not in one.current.log()


def test_the_socket_is_for_its_user_alone_and_goes_in_the_end(line):
    one = line()
    mode = os.stat(one.socket).st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    before = one.upgrade()
    assert before.wait(10) == 0
    assert os.path.exists(one.socket), "it is the new one's now"
    one.current.signal(signal.SIGTERM)
    assert one.current.wait(10) == 0
    assert not os.path.exists(one.socket)
    one.first(takeover=False)
    one.current.signal(signal.SIGKILL)
    one.current.wait()
    assert os.path.exists(one.socket)
    one.first(takeover=False)  # in place of what the dead one left


def test_a_second_kvway_without_takeover_does_not_take_the_path(line):
    one = line()
    new = one.start({"listen": "127.0.0.1:0", "admin.listen": "127.0.0.1:0"}, takeover=False)
    assert new.wait(20) == 1
    assert "--takeover takes over from it" in new.log()
    assert one.current.alive()


def test_nobody_there_to_take_over_from(line, tmp_path):
    one = line()
    new = one.start({"takeover.socket": None}, takeover=False, argv=["--takeover", tmp_path / "none"])
    assert new.wait(20) == 1
    assert "no kvway with this takeover.socket runs there" in new.log()


def test_not_during_a_shutdown(line):
    one = line({"drain.settle": "20s"})
    one.current.signal(signal.SIGTERM)
    until(lambda: "draining" in one.current.log(), 5, "draining")
    new = one.start()
    assert new.wait(20) == 1
    assert "it is shutting down" in new.log()
    one.current.signal(signal.SIGTERM)
    one.current.wait(10)
    one.first({"drain.settle": "0s"}, takeover=False)


def test_one_that_is_not_ready_in_time_has_failed(line):
    one = line({"takeover.timeout": "1s"})
    peer = Peer(one.socket)
    peer.take()
    second = Peer(one.socket)
    second.say("hello")
    assert second.hear() == ("refused", {"count": "0", "why": "another process is taking over"})
    kind, fields = peer.hear()
    assert (kind, fields["why"]) == ("refused", "it was not ready in time")
    assert peer.hear() == ("", {})
    peer.close()
    second.close()
    assert ask(one.port, "GET", "/ready").status == 200
    one.upgrade()


def test_what_is_no_takeover_is_closed_and_leaks_nothing(line):
    one = line()
    fds = one.current.fds()
    dice = random.Random(2)
    with open("/dev/null") as null:
        garbage = [
            (b"\0", ()),
            (b"GET / HTTP/1.1\r\n\r\n", ()),
            (b"kvway-takeover 1 hello", ()),
            (b"kvway-takeover 2 hello\n", ()),
            (b"kvway-takeover 1 ready\n", ()),
            (b"kvway-takeover 1 hello\npid x\n", ()),
            (b"kvway-takeover 1 hello\n" + b"a b\n" * 1000, ()),
            (b"kvway-takeover 1 hello\n", (null.fileno(),)),
            (b"kvway-takeover 1 socket\nuse listen\naddress x\ncount 3\n", (null.fileno(),) * 3),
            (b"kvway-takeover 1 hello\n", (null.fileno(),) * 60),
            (bytes(dice.randrange(256) for _ in range(500)), (null.fileno(),) * 2),
        ]
        for data, passed in garbage:
            peer = Peer(one.socket)
            peer.send(data, passed)
            assert peer.hear()[0] == "refused", data
            assert peer.hear() == ("", {})
            peer.close()
    for _ in range(30):  # silent ones wait in the kernel, or are let go
        Peer(one.socket).close()
    peer = Peer(one.socket)
    peer.take()
    peer.say("hello")
    assert peer.hear()[0] == "refused"
    peer.close()
    until(lambda: one.current.fds() <= fds, 10, "all descriptors closed")
    one.upgrade()


def test_a_signal_after_the_takeover_does_not_cut_streams(line):
    """A service manager stops all processes of a service at once."""
    one = line(script=stream_of(30, 0.1))
    with Client(one.port, timeout=30) as client:
        client.send_request("POST", CHAT, body=chat_body(stream=True))
        answer = client.read_head()
        before = one.upgrade()
        before.signal(signal.SIGTERM)
        client.read_body(answer)
        assert answer.events()[-1] == "[DONE]"
    assert before.wait(10) == 0


def test_sigusr2_starts_the_installed_program(line):
    """A configuration with mistakes leaves the running one serving; the next try takes over."""
    one = line(SETTLE)
    before = one.current
    path = before.argv[before.argv.index("-c") + 1]
    with open(path) as file:
        good = file.read()
    with open(path, "w") as file:
        file.write("loops: many\n")
    before.signal(signal.SIGUSR2)
    until(lambda: "the new kvway has ended" in before.log(), 20, "the broken one to end")
    assert ask(one.port, "GET", "/ready").status == 200
    with open(path, "w") as file:
        file.write(good)
    with Client(one.port) as kept:
        assert kept.ask("POST", CHAT, body=chat_body()).status == 200
        before.signal(signal.SIGUSR2)
        until(lambda: "accepting no more" in before.log(), 20, "the one before to stop accepting")
        heir = newest(before.log())
        try:
            assert kept.ask("POST", CHAT, body=chat_body()).headers.get("connection") == "close"
            assert ask(one.port, "POST", CHAT, body=chat_body()).status == 200
            assert one.metric("process_start_time_seconds") > 0
            assert before.wait(10) == 0
            assert ask(one.port, "GET", "/ready").status == 200
        finally:
            os.kill(heir, signal.SIGTERM)
    until(lambda: refuses(one.port), 10, "the end of the new one")
    until(lambda: ended(heir), 20, "the process to be gone, and with it its socket for takeovers")
    one.first(takeover=False)


def test_sigusr2_works_again_where_sigchld_was_ignored_at_the_start(line):
    one = line()
    one.current.signal(signal.SIGTERM)
    assert one.current.wait(20) == 0
    first = one.first(takeover=False, before=["env", "--ignore-signal=CHLD"])
    path = first.argv[first.argv.index("-c") + 1]
    with open(path, "w") as file:
        file.write("loops: many\n")
    for times in (1, 2):
        first.signal(signal.SIGUSR2)
        until(lambda t=times: first.log().count("the new kvway has ended") == t, 20, "the broken one to end")


def test_sockets_of_a_service_manager_are_adopted(line):
    """Clients that came before kvway did are served; a socket that no configuration names is closed."""
    one = line()
    one.current.signal(signal.SIGKILL)
    one.current.wait()
    made = [socket.create_server(("127.0.0.1", port)) for port in (one.port, one.admin_port, 0)]
    with Client(one.port, timeout=30) as early, contextlib.ExitStack() as stack:
        for sock in made:
            stack.enter_context(sock)
            os.set_inheritable(sock.fileno(), True)
        early.send_request("POST", CHAT, body=chat_body())
        passed = " ".join(f"{3 + i}<&{sock.fileno()}" for i, sock in enumerate(made))
        start = f'LISTEN_FDS=3 LISTEN_PID=$$ LISTEN_FDNAMES=kvway.socket:admin:x exec "$0" "$@" {passed}'
        one.first(takeover=False, before=["bash", "-c", start], close_fds=False)
        assert early.read().status == 200
        assert one.metric("kvway_takeover_adopted_sockets") == 2
        assert "not adopted: this configuration does not listen there use=any" in one.current.log()
    one.upgrade()


class Manager:
    """A service manager that keeps descriptors; `kept` has its name for each."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(path)
        self.sock.settimeout(0.2)
        self.kept, self.heard = [], []

    def hear(self):
        with contextlib.suppress(TimeoutError):
            while True:
                message, fds, _, _ = socket.recv_fds(self.sock, 4096, 16)
                lines = dict(line.split("=", 1) for line in message.decode().splitlines())
                name = lines.get("FDNAME")
                if "FDSTORE" in lines:
                    self.kept += [(name, fd) for fd in fds]
                elif "FDSTOREREMOVE" in lines:
                    for fd in [fd for had, fd in self.kept if had == name]:
                        os.close(fd)
                    self.kept = [(had, fd) for had, fd in self.kept if had != name]
                self.heard.append(lines)
        return self.heard

    def wait(self, wanted):
        until(lambda: [m for m in self.hear() if wanted in m], 10, wanted)
        return self.heard[-1]

    def names(self):
        self.hear()
        return {name for name, _ in self.kept}

    def close(self):
        self.sock.close()
        for _, fd in self.kept:
            os.close(fd)


def test_a_service_manager_keeps_the_sockets_over_a_crash(line, tmp_path, monkeypatch):
    """It hears which process is the main one. Clients that come after the crash are served by the next one."""
    manager = Manager(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    one = line()
    until(lambda: manager.names() == {"listen", "admin", "takeover"}, 10, "sockets to be stored")
    manager.heard.clear()
    before = one.upgrade()
    manager.wait("MAINPID")
    assert {"MAINPID": str(one.current.pid)} in manager.heard
    until(lambda: manager.names() == {"listen", "admin", "takeover"}, 10, "sockets to be stored")
    assert before.wait(20) == 0
    count = len(manager.kept)
    one.current.signal(signal.SIGKILL)
    one.current.wait()
    with Client(one.port, timeout=30) as early:
        early.send_request("POST", CHAT, body=chat_body())
        for _, fd in manager.kept:
            os.set_inheritable(fd, True)
        # From high numbers down to 3, 4, ...: none is in the way of another.
        first = max(fd for _, fd in manager.kept) + 100
        passed = " ".join(f"{first + i}<&{fd}" for i, (_, fd) in enumerate(manager.kept))
        passed += "".join(f" {3 + i}<&{first + i} {first + i}<&-" for i in range(count))
        names = ":".join(name for name, _ in manager.kept)
        start = f'LISTEN_FDS={count} LISTEN_PID=$$ LISTEN_FDNAMES={names} exec "$0" "$@" {passed}'
        one.first(takeover=False, before=["bash", "-c", start], close_fds=False)
        assert early.read().status == 200
        assert one.metric("kvway_takeover_adopted_sockets") == count
        assert "not adopted" not in one.log()
    manager.close()


def ended(pid):
    """Is a process gone that is no child of this one? A zombie, whose status no process took, is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # before open, before read
        return True


def newest(log):
    """Process id of the kvway that was started last."""
    return int(re.findall(r"started the new kvway .*pid=(\d+)", log)[-1])


def test_the_old_one_dies_first(line):
    """The new one has the sockets, so it serves."""
    one = line({"health.interval": "300ms"})
    before = one.current
    new = one.start({"health.timeout": "5s"})
    until(lambda: "taking over" in new.log(), 10, "sockets taken")
    before.signal(signal.SIGKILL)
    until(lambda: one.said(new, "listens on"), 30, "taken over")
    one.current = new
    with contextlib.suppress(Closed):
        assert ask(one.port, "GET", "/health", timeout=10 * PATIENCE).status == 200


def test_clients_and_the_admin_address_behind_tls(line, tmp_path):
    """The admin address speaks plain HTTP before the first upgrade, TLS afterwards."""
    authority = tls.Authority(tmp_path)
    cert, key = map(str, authority.issue("local", "IP:127.0.0.1"))
    trust = tls.client_context(authority)
    one = line({"tls.certificate": cert, "tls.key": key, **SETTLE}, script=stream_of(10, 0.05))

    def ready():
        try:
            with TlsClient(one.admin_port, trust, timeout=10 * PATIENCE) as client:
                return client.ask("GET", "/ready").status == 200
        except (OSError, Closed):
            return False  # the one before, which speaks plain HTTP, may accept it until it stops

    load = Load(one.port, 2, 2, 0.05, 10, connect=lambda: TlsClient(one.port, trust, timeout=30 * PATIENCE))
    try:
        for _ in range(3):
            one.upgrade({"admin.tls.certificate": cert, "admin.tls.key": key})
            until(ready, 10, "the admin address of the new one")
        until(lambda: load.streams >= 2, 30, "streams")
    finally:
        load.stop()
    assert not load.wrong, load.wrong[:20]
    assert "not adopted" not in one.current.log()


def test_a_snapshot_is_the_new_ones_alone(line, tmp_path):
    """The one before, which ends later and has learned nothing since, does not replace it."""
    kept = tmp_path / "state"
    one = line({"state.file": str(kept), "state.interval": "1h"})
    assert one.upgrade().wait(20 * PATIENCE) == 0
    assert not kept.exists()
    one.current.signal(signal.SIGTERM)
    assert one.current.wait(20) == 0
    assert kept.exists()
    one.first(takeover=False)


class OldProcess:
    """What a new process takes for the running kvway; it says what a test wants."""

    def __init__(self, line, path, config=None):
        self.path = str(path)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.bind(self.path)
        self.sock.listen()
        self.sock.settimeout(30 * PATIENCE)
        apart = {"listen": "127.0.0.1:0", "admin.listen": "127.0.0.1:0", "takeover.socket": None}
        self.new = line.start({**apart, **(config or {})}, takeover=False, argv=["--takeover", self.path])
        self.channel = None

    def hear(self, kind):
        if self.channel is None:
            self.channel, _ = self.sock.accept()
            self.channel.settimeout(30 * PATIENCE)
        assert self.channel.recv(4096).startswith(f"kvway-takeover 1 {kind}\n".encode())

    def say(self, kind, *lines, fds=()):
        self.send("\n".join([f"kvway-takeover 1 {kind}", *lines, ""]).encode(), fds)

    def send(self, data, fds=()):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.channel.sendmsg([data], rights)

    def reach(self, step):
        """Says all that comes before the answer of this step."""
        self.hear("hello")
        if step == "hello":
            return
        self.say("welcome", "pid 1", "version test", "count 0", *(["tickets 1"] if step == "tickets" else []))
        if step == "sockets":
            return
        self.say("end", "count 0")
        if step == "tickets":
            self.hear("tickets")
        elif step == "ready":
            self.hear("ready")
        elif step == "unasked":
            until(lambda: "taking over from" in self.new.log(), 20, "the new one to wait for its workers")

    def close(self):
        self.sock.close()
        if self.channel is not None:
            self.channel.close()


LISTENS = b"kvway-takeover 1 socket\nuse listen\naddress 1.2.3.4:5\ncount %d\n"
BAD = {
    "garbage": (b"\x00\xff", "is no message of a takeover"),
    "empty": (b"", "is no message of a takeover"),
    "cut": (b"kvway-takeover 1 goodb", "is no message of a takeover"),
    "version": (b"kvway-takeover 2 goodbye\n", "is of another version of the takeover's protocol"),
    "long": (b"kvway-takeover 1 goodbye\n" + b"a b\n" * 1000, "is longer than 2048 bytes"),
    "kind": (b"kvway-takeover 1 hello\n", "is not to be expected: hello"),
}
ANSWERS = [(step, *BAD[kind], 0) for step in ("hello", "ready") for kind in BAD]
ANSWERS += [(step, *BAD[kind], 0) for step in ("sockets", "tickets", "unasked") for kind in ("garbage", "version", "kind")]
ANSWERS += [
    ("unasked", b"kvway-takeover 1 goodbye\n", "what it says unasked is not to be expected: goodbye", 0),
    ("sockets", b"kvway-takeover 1 end\ncount 2\n", "it has handed 0 sockets over and says that there were 2", 0),
    ("sockets", LISTENS % 2, "its answer to hello does not bring the descriptors that it names", 1),
    ("sockets", LISTENS % 1, "use=listen address=1.2.3.4:5 cannot be used as a listening socket", 1),
    ("tickets", b"kvway-takeover 1 tickets\nuse listen\ncount 1\nkeys 0\n", "is no message of a takeover", 0),
    ("ready", b"kvway-takeover 1 refused\nwhy it serves on\n", "it serves on", 0),
]


def test_an_answer_that_cannot_be_read_ends_the_new_process(line, tmp_path):
    """The old one lives and serves: the new one says what was wrong, and does not serve as well."""
    one = line()
    slow = {"workers": [{"url": "http://192.0.2.1:80"}], "health.timeout": "20s"}
    with open("/dev/null") as null:
        for i in range(0, len(ANSWERS), 6):
            some = ANSWERS[i : i + 6]
            olds = [
                OldProcess(one, tmp_path / f"old{i + n}.sock", slow if step == "unasked" else None)
                for n, (step, *_) in enumerate(some)
            ]
            for old, (step, data, wanted, fds) in zip(olds, some, strict=True):
                old.reach(step)
                old.send(data, [null.fileno()] * fds)
                assert old.new.wait(30 * PATIENCE) == 1, (step, data)
                assert "the running kvway" in old.new.log() and wanted in old.new.log(), (step, data, old.new.log())
                if step not in ("sockets", "unasked") and "answer" not in wanted and "serves on" not in wanted:
                    assert f"its answer to {step} {wanted}" in old.new.log()
                old.close()


def test_one_that_is_refused_at_the_end_writes_no_snapshot(line, tmp_path):
    one, kept = line(), tmp_path / "state"
    old = OldProcess(one, tmp_path / "other.sock", {"state.file": str(kept), "state.interval": "1h"})
    old.reach("ready")
    old.say("refused", "why it serves on")
    assert old.new.wait(30 * PATIENCE) == 1
    assert "the running kvway serves on: it serves on" in old.new.log()
    assert not kept.exists()
    old.close()


def test_a_path_relative_to_the_folder(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = line({"takeover.socket": "near.sock"})
    one.socket = "near.sock"
    one.upgrade()
    one.upgrade({"takeover.socket": "other.sock"}).wait(20 * PATIENCE)
    assert os.path.exists("other.sock") and not os.path.exists("near.sock")


def test_one_that_waits_while_no_descriptor_is_left_costs_no_cpu(line):
    one = line()
    pid = one.current.pid
    _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = min(set(range(len(taken) + 1)) - taken)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, most))
    peer = Peer(one.socket)
    used = cpu_seconds(pid)
    time.sleep(2)
    used = cpu_seconds(pid) - used
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert peer.take()
    peer.close()
    assert used < 0.3 * PATIENCE


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_sessions_of_before_an_upgrade_are_resumed(line, tmp_path, version):
    """By both processes while both accept, and a ticket of the new one by the next one. Addresses have keys of their own."""
    authority = tls.Authority(tmp_path)
    cert, key = map(str, authority.issue("local", "IP:127.0.0.1"))
    trust = tls.client_context(authority)
    trust.maximum_version = version
    one = line({"tls.certificate": cert, "tls.key": key})
    behind = {"admin.tls.certificate": cert, "admin.tls.key": key}

    def session(port, old=None):
        with TlsClient(port, trust, session=old, timeout=10 * PATIENCE) as client:
            assert client.ask("GET", "/ready").status == 200
            return client.sock.session, client.sock.session_reused

    def ready():
        try:
            return session(one.admin_port)
        except (OSError, Closed):
            return None

    clients, admin = session(one.port)[0], None
    for _ in range(3):
        assert one.upgrade(behind).wait(20 * PATIENCE) == 0
        clients, resumed = session(one.port, clients)
        assert resumed
        old, (admin, resumed) = admin, until(ready, 10, "the admin address")
        assert old is None or session(one.admin_port, old)[1]
        assert not session(one.admin_port, clients)[1]


def test_keys_of_tls_tickets_are_handed_over_once(line, tmp_path):
    """By the process that made them, and by the one that has got them."""
    authority = tls.Authority(tmp_path)
    cert, key = map(str, authority.issue("local", "IP:127.0.0.1"))
    one = line({"tls.certificate": cert, "tls.key": key})
    peer = Peer(one.socket)
    peer.take()
    peer.say("tickets")
    kind, fields = peer.hear()
    assert (kind, fields["use"], len(fields["keys"])) == ("tickets", "listen", 160)
    assert peer.hear() == ("tickets", {"count": "0"})
    peer.say("tickets")
    assert peer.hear()[0] == "refused"
    peer.close()
    until(lambda: one.metric("kvway_takeover_under_way") == 0, 10, "the peer to be let go")
    one.upgrade().wait(20 * PATIENCE)
    heir = Peer(one.socket)
    heir.take()
    heir.say("tickets")
    assert heir.hear()[1]["keys"] == fields["keys"]
    heir.close()
