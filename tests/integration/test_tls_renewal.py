"""Certificates that are replaced while kvway runs: no restart, no error, and the old ones if the new are unfit."""

import os
import shutil
import ssl
import threading

import pytest

from rig import tls
from rig.client import CHAT, ask, chat_body
from rig.router import SANITIZED
from rig.tls import TlsClient, TlsWorker
from rig.wait import until


@pytest.fixture(scope="module")
def pairs(authority):
    return [authority.issue(name, "IP:127.0.0.1,DNS:localhost") for name in ("first", "second")]


class Mounted:
    """A certificate and its key under fixed names, replaced by renaming."""

    def __init__(self, folder, pair):
        self.paths = folder / "tls.crt", folder / "tls.key"
        self.put(pair)

    def put(self, pair, files=(0, 1)):
        for i in files:
            fresh = self.paths[i].with_suffix(".new")
            shutil.copy(pair[i], fresh)
            os.rename(fresh, self.paths[i])

    @property
    def keys(self):
        return {"tls.certificate": str(self.paths[0]), "tls.key": str(self.paths[1])}


def name_shown(router, trust):
    """The common name of the certificate that a new connection gets."""
    with TlsClient(router.port, trust) as client:
        subject = dict(part[0] for part in client.sock.getpeercert()["subject"])
        assert client.ask("GET", "/health").status == 200
    return subject["commonName"]


def reloads(router, result):
    return router.metric("kvway_tls_certificate_reloads_total", result=result)


def test_replaced_many_times_under_load(kvway, workers, tmp_path, pairs, trust):
    """New connections and long-lived ones, in four threads, while the pair is replaced again and again."""
    times = 20 if SANITIZED else 100
    mounted = Mounted(tmp_path, pairs[0])
    (worker,) = workers(1)
    router = tls.wait_up(kvway([worker], mounted.keys, up=False), [worker])
    over, failures, served = threading.Event(), [], [0] * 4

    def load(number):
        try:
            with TlsClient(router.port, trust) as kept:
                while not over.is_set():
                    assert kept.ask("POST", CHAT, body=chat_body()).status == 200
                    with TlsClient(router.port, trust) as fresh:
                        assert fresh.ask("POST", CHAT, body=chat_body(stream=True)).status == 200
                    served[number] += 2
        except Exception as error:  # noqa: BLE001 - whatever it is, it is one error too many
            failures.append(error)

    threads = [tls.in_background(load, number) for number in range(len(served))]
    for turn in range(1, times + 1):
        mounted.put(pairs[turn % 2])
        assert ask(router.admin_port, "POST", "/reload").status == 200
    until(lambda: min(served) > 10 or failures, 20, "some load")
    over.set()
    for thread in threads:
        thread.join(20)
    assert not failures, failures[0]
    assert reloads(router, "ok") == times
    assert reloads(router, "refused") == 0
    assert name_shown(router, trust) == "first"
    router.wait_idle()


def test_a_pair_that_does_not_fit_is_refused(kvway, workers, tmp_path, pairs, trust):
    mounted = Mounted(tmp_path, pairs[0])
    (worker,) = workers(1)
    router = tls.wait_up(kvway([worker], mounted.keys, up=False), [worker])
    mounted.put(pairs[1], files=[0])
    until(lambda: reloads(router, "refused") == 1, 10, "half a pair refused")
    assert "new certificates refused, the old ones serve on use=listen" in router.log()
    assert "key values mismatch" in router.log()
    assert name_shown(router, trust) == "first"
    mounted.put(pairs[1], files=[1])
    until(lambda: reloads(router, "ok") == 1, 10, "the whole pair taken")
    assert reloads(router, "refused") == 1
    assert name_shown(router, trust) == "second"


def test_a_swapped_secret_is_noticed(kvway, workers, tmp_path, pairs, trust):
    """As kubelet does it: the files lead through ..data to a folder that is replaced by another one."""
    for name, pair in zip(("one", "two"), pairs):
        (tmp_path / name).mkdir()
        Mounted(tmp_path / name, pair)
    data = tmp_path / "..data"
    data.symlink_to("one")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    keys = {"tls.certificate": str(tmp_path / "tls.crt"), "tls.key": str(tmp_path / "tls.key")}
    (worker,) = workers(1)
    router = tls.wait_up(kvway([worker], keys, up=False), [worker])
    with TlsClient(router.port, trust) as kept:
        assert kept.ask("GET", "/health").status == 200
        (tmp_path / "..tmp").symlink_to("two")
        os.rename(tmp_path / "..tmp", data)
        until(lambda: reloads(router, "ok") == 1, 10, "the swap noticed")
        assert name_shown(router, trust) == "second"
        assert kept.ask("GET", "/health").status == 200, "the open connection was not kept"


def test_ends_are_shown(kvway, workers, tmp_path, pairs, trust):
    mounted = Mounted(tmp_path, pairs[0])
    (worker,) = workers(1)
    router = tls.wait_up(kvway([worker], mounted.keys, up=False), [worker])
    path = str(mounted.paths[0])
    shown = router.metric("kvway_tls_certificate_not_after_seconds", use="listen", file=path)
    with TlsClient(router.port, trust) as client:
        assert shown == ssl.cert_time_to_seconds(client.sock.getpeercert()["notAfter"])


def test_authorities_of_workers_are_renewed(kvway, tmp_path, authority, pairs):
    """Requests and probes alike believe what the file says now."""
    other = tls.Authority(tmp_path, "other")
    believed = tmp_path / "ca.crt"
    shutil.copy(other.cert, believed)
    worker = TlsWorker(pairs[0], name="secure")
    try:
        config = {"upstream.tls.ca_file": str(believed), "health.fall": 1}
        router = kvway([worker], config, up=False, worker_keys={"models": ["tiny"]})
        router.wait_up()
        until(lambda: router.metric("kvway_worker_usable") == 0, 10, "the probe fails")
        shutil.copy(authority.cert, tmp_path / "ca.new")
        os.rename(tmp_path / "ca.new", believed)
        until(lambda: reloads(router, "ok") == 1, 10, "the authorities renewed")
        until(lambda: router.metric("kvway_worker_usable") == 1, 10, "the probe succeeds")
        assert router.ask("POST", CHAT, body=chat_body()).status == 200
    finally:
        worker.stop()


@pytest.mark.parametrize("broken", ["authorities", "pair"])
def test_probes_forgive_files_that_do_not_fit(kvway, tmp_path, authority, pairs, broken):
    """A half-written file of authorities, or half of a new pair, is not the worker's fault."""
    believed = tmp_path / "ca.crt"
    shutil.copy(authority.cert, believed)
    mounted = Mounted(tmp_path, pairs[0])
    own = {"upstream.tls.certificate": str(mounted.paths[0]), "upstream.tls.key": str(mounted.paths[1])}
    config = {"upstream.tls.ca_file": str(believed), "health.fall": 1, "health.interval": "100ms", **own}
    worker = TlsWorker(pairs[0], name="secure")
    try:
        router = kvway([worker], config)
        if broken == "pair":
            mounted.put(pairs[1], files=[0])
        else:
            believed.write_text(authority.cert.read_text()[:200])
        until(lambda: "files of upstream.tls cannot be used" in router.log(), 10, "a probe complains")
        until(lambda: reloads(router, "refused") >= 1, 10, "the files refused")
        assert router.metric("kvway_worker_usable") == 1
        assert router.ask("POST", CHAT, body=chat_body()).status == 200
        assert "worker is out" not in router.log()
    finally:
        worker.stop()
