"""The admin address: its own keys, and what other hosts may use without one."""

import hashlib
import json
import socket
import subprocess
from urllib.parse import quote

import pytest
from rig.client import Client, ask, chat_body, crowd
from rig.router import PROGRAM
from rig.wait import until, unused_port

CANARY = "sk-canary-"
KEY = CANARY + "admin-0123456789"
SCRAPER = CANARY + "prometheus-0123456789"
OLD = CANARY + "old-0123456789"
CLIENT = CANARY + "client-0123456789"


def entry(name, key, **more):
    return {"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest(), **more}


ENTRIES = [entry("admin", KEY), entry("prometheus", SCRAPER, paths=["/metrics"]), entry("old", OLD, expires="2020-01-01")]


def put(path, entries):
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"keys": entries}))
    new.rename(path)


def bearer(key):
    return [("Authorization", f"Bearer {key}")]


@pytest.fixture
def admin(tmp_path, workers, kvway):
    """admin({key: value}): a router whose admin address has keys."""

    def make(config=None):
        path = tmp_path / "admin.yaml"
        put(path, ENTRIES)
        put(tmp_path / "clients.yaml", [entry("client", CLIENT)])
        config = {"admin.keys_file": str(path), "auth.keys_file": str(tmp_path / "clients.yaml"), **(config or {})}
        router = kvway(workers(1), config, up=False)
        until(lambda: answers(router), 15, "kvway up")
        router.keys_file = path
        return router

    return make


def answers(router):
    assert router.alive(), router.log()
    try:
        return ask(router.admin_port, "GET", "/ready").status == 200
    except OSError:
        return False


def test_everything_but_probes_needs_a_key(admin):
    router = admin()
    for target in ("/health", "/ready"):
        assert ask(router.admin_port, "GET", target).status == 200
    tried = [("GET", "/metrics"), ("GET", "/workers"), ("POST", "/reload"), ("POST", "/explain"), ("GET", "/v1/models"),
             ("POST", "/broadcast/sleep"), ("GET", "/openapi.json"), ("GET", "/nothing")]  # fmt: skip
    for method, target in tried:
        for headers, status in (([], 401), (bearer(CLIENT), 401), (bearer(OLD), 401), (bearer(SCRAPER), 403)):
            if (target, status) == ("/metrics", 403):
                continue
            answer = ask(router.admin_port, method, target, headers)
            assert answer.status == status, (target, headers, answer)
            assert answer.json()["error"]["code"] == status
            assert ("www-authenticate" in answer.headers) == (status == 401)
        assert ask(router.admin_port, method, target, bearer(KEY)).status not in (401, 403), target
    assert ask(router.admin_port, "GET", "/metrics", bearer(SCRAPER)).status == 200
    assert ask(router.admin_port, "GET", "/metrics", [("x-api-key", KEY)]).status == 200
    assert ask(router.admin_port, "GET", "/metrics", bearer(KEY) + [("x-api-key", OLD)]).status == 400
    assert ask(router.admin_port, "GET", f"/metrics?api_key={KEY}", bearer(KEY)).status == 400
    # A key of the admin address is none of a client.
    assert router.ask("GET", "/v1/models", bearer(KEY)).status == 401
    assert router.ask("GET", "/v1/models", bearer(CLIENT)).status == 200
    assert CANARY not in router.log()


def test_a_key_of_workers_reaches_one_that_is_named_by_its_url(admin):
    router = admin()
    put(router.keys_file, [entry("operator", OLD, paths=["/workers/*"])])
    url = json.loads(router.config_path.read_text())["workers"][0]["url"]
    target = f"/workers/{quote(url, safe='')}"
    until(lambda: ask(router.admin_port, "GET", target, bearer(OLD)).status == 200, 20, "the new keys are in force")
    assert ask(router.admin_port, "POST", target + "/undrain", bearer(OLD)).status == 200
    for other in ("/workers/../reload", "/workers/a%2Fb/../../reload", "/reload", "/workers/a%2Fb/%2e%2e/x", "/workers"):
        assert ask(router.admin_port, "POST", other, bearer(OLD)).status == 403, other


def test_decided_before_the_body(admin):
    router = admin()
    with Client(router.admin_port) as client:
        client.send_head("POST", "/explain", [("content-length", "50000000")])
        assert client.read("POST").status == 401
    with Client(router.admin_port) as client:
        for _ in range(3):  # a refusal without a body keeps the connection
            assert client.ask("GET", "/workers").status == 401
        assert client.ask("GET", "/workers", bearer(KEY)).status == 200
        assert client.ask("POST", "/explain?path=/v1/chat/completions", body=chat_body()).status == 401


def test_open_paths_and_new_keys(admin):
    router = admin({"admin.open": ["/metrics", "/broadcast/*"]})
    assert ask(router.admin_port, "GET", "/metrics").status == 200
    assert ask(router.admin_port, "GET", "/broadcast/is_sleeping").status in (200, 207)
    assert ask(router.admin_port, "GET", "/broadcast/../workers").status == 401
    assert ask(router.admin_port, "GET", "/workers").status == 401
    put(router.keys_file, [entry("other", OLD)])
    until(lambda: ask(router.admin_port, "GET", "/workers", bearer(OLD)).status == 200, 20, "the new keys are in force")
    assert ask(router.admin_port, "GET", "/workers", bearer(KEY)).status == 401
    config = json.loads(router.config_path.read_text())
    config["admin"]["open"] = ["/workers"]
    router.config_path.write_text(json.dumps(config))
    assert ask(router.admin_port, "POST", "/reload", bearer(OLD)).status == 200
    assert ask(router.admin_port, "GET", "/workers").status == 200
    assert ask(router.admin_port, "GET", "/metrics").status == 401


EVIL = ("Origin", "http://evil.example")
JSON = ("Content-Type", "application/json")
TEXT = ("Content-Type", "text/plain")
FORM = ("Content-Type", "application/x-www-form-urlencoded")
WISHED = ("X-Requested-With", "curl")
CHANGES = [("POST", "/workers"), ("POST", "/reload"), ("POST", "/broadcast/sleep"), ("POST", "/workers/a:1/drain"),
           ("POST", "/explain"), ("PATCH", "/groups"), ("DELETE", "/workers/a:1")]  # fmt: skip


def test_what_web_pages_send_is_refused(workers, kvway):
    router = kvway(workers(1))
    port, body = router.admin_port, b'{"url": "http://127.0.0.1:2"}'
    before = ask(port, "GET", "/workers").body

    def tried(method, path, *headers):
        return ask(port, method, path, list(headers), body).status

    for method, path in CHANGES:
        for page in (EVIL, ("Origin", "null"), ("Origin", f"http://127.0.0.1:{port + 1}"), ("Origin", "http://test.evil.example")):
            assert tried(method, path, page, JSON) == 403, (path, page)
        for host in (f"evil.example:{port}", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example.", "1.2.3.4.5"):
            assert tried(method, path, ("Host", host), ("Origin", f"http://{host}"), JSON) == 403, (path, host)
        for kind in (TEXT, FORM, ("Content-Type", "text/plain; a=application/json"), ("Content-Type", "multipart/form-data")):
            assert tried(method, path, kind) == (415 if method == "POST" else tried(method, path, JSON)), (path, kind)
    assert ask(port, "OPTIONS", "/workers", [EVIL, ("Access-Control-Request-Method", "POST")]).status == 403
    assert ask(port, "OPTIONS", "/workers").status == 405
    assert ask(port, "GET", "/workers", [("Host", "evil.example:9000")]).status == 403  # its name leads here: it may read
    assert ask(port, "GET", "/metrics", [EVIL]).status == 403
    assert ask(port, "GET", "/ready", [("Host", "kvway.example")]).status == 200
    assert ask(port, "GET", "/workers").body == before
    log = router.log()
    assert "a web page of another address asks" in log and "a change is asked for" not in log


def test_people_and_their_tools_are_served(workers, kvway):
    router = kvway(workers(1))
    port, body = router.admin_port, b'{"url": "http://127.0.0.1:2"}'
    for number, headers in enumerate(([JSON], [WISHED], [TEXT, WISHED], [("Content-Type", "application/json; charset=utf-8")],
                                      [JSON, ("Host", f"127.0.0.1:{port}"), ("Origin", f"http://127.0.0.1:{port}")],
                                      [JSON, ("Host", f"LOCALHOST.:{port}"), ("Origin", f"http://localhost.:{port}")],
                                      [JSON, ("Host", f"[::1]:{port}")], [JSON, ("Host", "kvway.localhost")],
                                      [JSON, ("Host", socket.gethostname())])):  # fmt: skip
        assert ask(port, "POST", "/workers", headers, body.replace(b":2", b":%d" % (number + 2))).status == 201, headers
        assert ask(port, "DELETE", f"/workers/127.0.0.1:{number + 2}?now=true").status == 200
    assert ask(port, "POST", "/reload", [WISHED]).status == 200


def test_a_key_or_an_open_path_says_who_asks(admin):
    router = admin({"admin.open": ["/metrics", "/broadcast/*"]})
    port = router.admin_port
    assert ask(port, "POST", "/reload", bearer(KEY) + [TEXT, ("Host", "kvway.example:9090")]).status == 200
    assert ask(port, "GET", "/metrics", [("Host", "kvway.monitoring.svc.example:9090")]).status == 200
    assert ask(port, "POST", "/broadcast/reset_prefix_cache", [TEXT], b"").status == 415
    assert ask(port, "POST", "/broadcast/reset_prefix_cache", [EVIL, WISHED]).status == 403
    assert ask(port, "POST", "/broadcast/reset_prefix_cache", [WISHED]).status in (200, 207)
    assert ask(port, "POST", "/broadcast/reset_prefix_cache", bearer(KEY) + [TEXT]).status in (200, 207)


def test_commands_show_a_key(admin, tmp_path):
    router = admin()
    (tmp_path / "key").write_text(KEY + "\n")
    (tmp_path / "empty").write_text("\n")
    here = ("--admin", f"127.0.0.1:{router.admin_port}")

    def run(*words):
        return subprocess.run([PROGRAM, *words, *here], input=json.dumps(chat_body()), text=True,
                              capture_output=True, timeout=60)  # fmt: skip

    assert "needs a key" in run("workers").stderr
    for words in (("workers",), ("explain",)):
        done = run(*words, "--key-file", str(tmp_path / "key"))
        assert done.returncode == 0, done.stderr
        for name, expected in (("empty", "found no key"), ("missing", "cannot be opened")):
            done = run(*words, "--key-file", str(tmp_path / name))
            assert done.returncode == 1 and expected in done.stderr, done.stderr


# --- other hosts ---


def address_of_this_host():
    """One that is not loopback's; None: there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            return probe.getsockname()[0]
        except OSError:
            return None


def ask_from(source, host, port, target):
    with socket.create_connection((host, port), 20, source_address=(source, 0)) as sock:
        sock.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return int(sock.makefile("rb").readline().split()[1])


def test_other_hosts_get_what_is_open(workers, kvway):
    port, outside = unused_port(), address_of_this_host()
    router = kvway(workers(1), {"admin.listen": f"0.0.0.0:{port}", "admin.open": ["/metrics"]}, up=False)
    router.admin_port = port
    router.wait_up()
    until(lambda: ask(port, "GET", "/ready").status == 200, what="the worker to be in")
    assert ask(port, "GET", "/workers").status == 200
    if outside is None:
        pytest.skip("this host has no address but loopback")
    # From its own address to that address, as `kvway workers -c FILE` asks: this host.
    assert ask_from(outside, outside, port, "/workers") == 200
    # From another address than it is asked at: as from elsewhere.
    for target, status in (("/workers", 403), ("/reload", 403), ("/metrics", 200), ("/health", 200), ("/ready", 200),
                           ("/v1/models", 403), ("/metrics/../workers", 403), ("/%2e/metrics", 403)):  # fmt: skip
        assert ask_from(outside, "127.0.0.1", port, target) == status, target


def check(tmp_path, admin, more=""):
    path = tmp_path / "kvway.yaml"
    path.write_text(f"workers:\n  - url: http://127.0.0.1:1\nadmin:\n  listen: '{admin}'\n{more}")
    done = subprocess.run([PROGRAM, "check", "-c", path], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr, path


def test_off_loopback_only_with_keys_or_open_paths(tmp_path):
    put(tmp_path / "admin.yaml", ENTRIES)
    for address in ("0.0.0.0:9090", "10.0.0.5:9090", "[::]:9090", "router.example:9090", "127.example:9090"):
        status, error, path = check(tmp_path, address)
        assert status == 1 and f"{path}:4:11: admin.listen: found `{address}`" in error, error
        assert "`admin.keys_file`" in error and "`admin.open`" in error
        started = subprocess.run([PROGRAM, "-c", path], capture_output=True, text=True, timeout=60)
        assert started.returncode == 1 and "admin.listen" in started.stderr
        assert check(tmp_path, address, f"  keys_file: {tmp_path}/admin.yaml\n")[0] == 0
        assert check(tmp_path, address, "  open: [/metrics]\n")[0] == 0
    for address in ("127.0.0.1:9090", "127.3.2.1:9090", "[::1]:9090", "[0:0:0:0:0:0:0:1]:9090", "[::ffff:127.0.0.1]:9090",
                    "localhost:9090"):  # fmt: skip
        assert check(tmp_path, address)[0] == 0
    flags = subprocess.run([PROGRAM, "check", "--admin", "0.0.0.0:9", "--worker", "http://a:1"], capture_output=True,
                           text=True, timeout=60)  # fmt: skip
    assert flags.returncode == 2 and "which other hosts reach" in flags.stderr
    assert "these are keys of a file, `-c FILE`" in flags.stderr


def test_connections_have_a_limit(workers, kvway):
    router = kvway(workers(1))

    def metric(client, name):
        lines = client.ask("GET", "/metrics").body.decode().splitlines()
        return next(int(line.split()[-1]) for line in lines if line.startswith(f"{name} "))

    with Client(router.admin_port) as kept:
        before = metric(kept, "kvway_admin_connections")
        with crowd(router.admin_port, 512 - before):
            until(lambda: metric(kept, "kvway_admin_connections") == 512)
            refused = metric(kept, "kvway_admin_connections_refused_total")
            with Client(router.admin_port) as one_more:
                assert one_more.closed_by_peer()
            assert metric(kept, "kvway_admin_connections_refused_total") == refused + 1
            assert metric(kept, "kvway_admin_connections") == 512
        until(lambda: metric(kept, "kvway_admin_connections") == 1)
    assert ask(router.admin_port, "GET", "/workers").status == 200


def test_changes_are_logged_with_the_name_of_the_key(admin):
    router = admin()
    for method, target in (("PATCH", "/groups"), ("DELETE", "/workers/none"), ("POST", "/reload")):
        ask(router.admin_port, method, target, bearer(KEY), b"{}")
        assert f'a change is asked for method={method} path="{target}" key="admin" certificate=""' in router.log()
    # A name cannot add fields to the line.
    ask(router.admin_port, "DELETE", '/workers/x"key="root', bearer(KEY))
    assert 'path="/workers/x' in router.log() and '"key="root' not in router.log()


def test_open_paths_that_change_something_are_warned_of(admin):
    router = admin({"admin.open": ["/metrics", "/workers/*"]})
    warned = "`admin.open` opens this path to all that reach the address path="
    until(lambda: warned in router.log(), 15, "the warning")
    assert f"{warned}/workers/* " in router.log()
    assert router.log().count(warned) == 1
    config = json.loads(router.config_path.read_text())
    for path in ("/explain", "/groups", "/workers/w1/drain", "/broadcast/wake_up"):
        config["admin"]["open"] = ["/metrics", path]
        router.config_path.write_text(json.dumps(config))
        assert ask(router.admin_port, "POST", "/reload", bearer(KEY)).status == 200
        until(lambda path=path: f"{warned}{path} " in router.log(), 15, "the warning of the new file")
    assert router.log().count(warned) == 5
    config["admin"]["open"] = ["/*"]
    router.config_path.write_text(json.dumps(config))
    assert ask(router.admin_port, "POST", "/reload", bearer(KEY)).status == 422


def test_mistakes_in_keys_of_the_admin_address(tmp_path):
    put(tmp_path / "admin.yaml", ENTRIES)
    keys = f"  keys_file: {tmp_path}/admin.yaml\n"
    status, error, path = check(tmp_path, "127.0.0.1:1", f"{keys}auth:\n  keys_file: {tmp_path}/admin.yaml\n")
    assert status == 1 and f"{path}:5:14: admin.keys_file: found the file that `auth.keys_file` names" in error
    status, error, path = check(tmp_path, "127.0.0.1:1", "  open: [metrics]\n")
    assert status == 1 and f"{path}:5:9: admin.open: found `metrics`, expected a path" in error
    (tmp_path / "admin.yaml").write_text("keys:\n  - nane: a\n")
    status, error, _ = check(tmp_path, "127.0.0.1:1", keys)
    assert status == 1 and "admin.yaml:2:5: keys[0].nane: found an unknown key" in error
