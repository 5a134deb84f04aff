"""Ways of a prompt's KV to its decoder besides NIXL's pull: the answers are one worker's, whatever happens."""

import json
import signal

import pytest

from rig.client import CHAT, COMPLETIONS, MESSAGES, Client
from rig.pd import (  # noqa: F401
    ALWAYS,
    LONG,
    RESPONSES,
    body_for,
    check,
    decodes,
    engines,
    known,
    nixl,
    parted,
    plain_text,
    prefills,
    text_of,
)
from rig.wait import until
from rig.worker import answer

KINDS = ["shared", "sidecar", "p2p"]


@pytest.fixture
def split(engines, kvway, tmp_path):  # noqa: F811
    """split(kind, config): (router, prefillers, decoders), all of them kvsim with that connector."""

    def make(kind, config=None, prefillers=1, decoders=1, theirs=None):
        theirs = theirs or kind
        if theirs == "shared":
            (tmp_path / "kv").mkdir(exist_ok=True)
            theirs = f"shared:{tmp_path / 'kv'}"
        ps = [engines("--transfer", theirs) for _ in range(prefillers)]
        ds = [engines("--transfer", theirs) for _ in range(decoders)]
        entries = [{"url": p.worker.url, "role": "prefill", "kv_port": p.worker.port} for p in ps]
        entries += [{"url": d.worker.url, "role": "decode"} for d in ds]
        more = {**ALWAYS, "pd.transfer": kind, "workers": entries, **(config or {})}
        router = kvway([e.worker for e in ps + ds], more)
        known(router)
        return router, ps, ds

    return make


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, MESSAGES, RESPONSES])
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_one_worker(engines, split, kind, path, stream):  # noqa: F811
    alone = engines(nixl=None)
    router, (p,), (d,) = split(kind)
    for i in range(3):
        text = f"{i} {LONG}"
        got = router.ask("POST", path, body=body_for(path, text, stream=stream))
        assert text_of(got, path, stream) == plain_text(alone, path, text)
    until(lambda: prefills(router, "ok") == decodes(router, "transferred") == 3, what="all is counted")
    assert p.worker.stats()["prefilled_tokens"] > 1000
    assert d.worker.stats()["prefilled_tokens"] <= 3 * 16, "the decoder computed a prompt"
    assert nixl(d)["pulled"] == 3 and nixl(d)["wrong"] == nixl(d)["recomputed"] == 0
    router.wait_idle()


@pytest.mark.parametrize("kind", KINDS)
def test_engines_of_another_connector_compute_it(engines, split, kind):  # noqa: F811
    """They do not understand the parameters, and say nothing; or have none."""
    router, (p,), (d,) = split(kind, theirs="nixl" if kind != "sidecar" else "p2p")
    check(router, engines(nixl=None), LONG)
    assert nixl(d)["pulled"] == 0 and d.worker.stats()["prefilled_tokens"] > 100
    router.wait_idle()


@pytest.mark.parametrize("fault", ["status=500", "reset-before-head", "close-after-head"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_prefill_that_fails_is_the_decoders(engines, split, kind, fault):  # noqa: F811
    router, (p,), (d,) = split(kind)
    p.worker.fail(fault)
    check(router, engines(nixl=None), LONG)
    if kind == "sidecar":
        assert decodes(router, "refused") == 1
    else:
        assert decodes(router, "fallback") == 1
    p.worker.fail("")
    router.wait_idle()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_decoder_that_breaks(engines, split, kind, stream):  # noqa: F811
    """What can be had once is prefilled again for another decoder; what lies in a storage is not."""
    router, (p,), ds = split(kind, decoders=2)
    alone = engines(nixl=None)
    ds[0].worker.fail("reset-before-head", 1)
    for i in range(40):
        check(router, alone, f"{i} {LONG}", stream)
        if router.metric("kvway_retries_total") or decodes(router, "repeated"):
            break
    assert decodes(router, "repeated") == (0 if kind == "shared" else 1)
    assert all(nixl(d)["wrong"] == 0 for d in ds)
    router.wait_idle()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_connection_to_the_decoder_that_went_stale(engines, split, kind):  # noqa: F811
    router, (p,), (d,) = split(kind, {"loops": 1})
    alone = engines(nixl=None)
    check(router, alone, LONG)
    d.worker.fail("stale-close", 1)
    check(router, alone, f"two {LONG}")
    assert prefills(router, "ok") == (2 if kind == "shared" else 3) or kind == "sidecar"
    assert nixl(d)["wrong"] == 0


@pytest.mark.parametrize("leg", ["prefill", "decode"])
@pytest.mark.parametrize("kind", KINDS)
def test_clients_that_leave(split, kind, leg):
    router, (p,), (d,) = split(kind)
    slow = p if leg == "prefill" else d
    slow.worker.fail("hang")
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=body_for(CHAT))
        port = d.worker.port if kind == "sidecar" else slow.worker.port
        until(lambda: router.sockets_to(port) > 0, what="it was asked")
        if leg == "decode" and kind != "sidecar":
            until(lambda: prefills(router, "ok") == 1, what="the decoder was asked")
    router.wait_idle()
    if kind != "sidecar" and leg == "prefill":
        assert prefills(router, "cancelled") == 1
    slow.worker.fail("")
    until(lambda: p.worker.stats()["running"] == d.worker.stats()["running"] == 0, what="both engines are idle")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leg", ["prefill", "decode"])
def test_a_worker_that_dies(engines, split, kind, leg):  # noqa: F811
    router, ps, ds = split(kind, prefillers=2, decoders=2)
    alone = engines(nixl=None)
    for i in range(4):
        check(router, alone, f"{i} {LONG}")
    (ps if leg == "prefill" else ds)[0].kill()
    for i in range(8):
        check(router, alone, f"after {i} {LONG}")
    assert all(nixl(d)["wrong"] == 0 for d in ds if d.alive())
    router.wait_idle()


def test_without_fallback_the_client_gets_the_error(split):
    router, (p,), (d,) = split("shared", {"pd.fallback": False})
    p.worker.fail("status=500")
    got = router.ask("POST", CHAT, body=body_for(CHAT))
    assert got.status == 502 and decodes(router, "failed") == 1
    router.wait_idle()


def test_shared_storage_that_has_lost_it(engines, split, tmp_path):  # noqa: F811
    """The decoder computes what is not there."""
    router, (p,), (d,) = split("shared")
    alone = engines(nixl=None)
    (tmp_path / "kv").rename(tmp_path / "gone")
    check(router, alone, LONG)
    assert decodes(router, "transferred") == 1 and nixl(d)["pulled"] == 0


def test_p2p_kv_that_was_dropped(engines, split):  # noqa: F811
    """The prefiller was restarted between the legs."""
    router, (p,), (d,) = split("p2p")
    alone = engines(nixl=None)
    d.worker.fail("delay-ms=1000", 1)
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=body_for(CHAT))
        until(lambda: prefills(router, "ok") == 1, what="it is prefilled")
        assert p.worker.ask("GET", "/sim/restart").status == 200
        assert text_of(client.read(), CHAT, False) == plain_text(alone, CHAT, LONG)
    assert nixl(d)["recomputed"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_both_legs_on_the_wire(workers, kvway, kind):
    p, d = workers(2)
    seen = {}

    def prefill(ex):
        seen["p"] = ex.read_body(), ex.headers
        ex.respond(200, [("content-type", "application/json")], b'{"id":"x","kv_transfer_params":null}')

    def decode(ex):
        seen["d"] = ex.read_body(), ex.headers
        answer(ex)

    p.script, d.script = prefill, decode
    entries = [{"url": p.url, "role": "prefill"}, {"url": d.url, "role": "decode"}]
    router = kvway([p, d], {**ALWAYS, "pd.transfer": kind, "pd.port": 7777, "workers": entries})
    known(router)
    sent = b'{ "model":"tiny", "max_tokens" : 77,"messages":[{"role":"user","content":"h\\u00e4"}]}'
    headers = [("Content-Type", "application/json"), ("X-Prefiller-Host-Port", "10.0.0.1:80")]
    assert router.ask("POST", CHAT, headers, body=sent).status == 200
    body, fields = seen["d"]
    if kind == "sidecar":
        assert "p" not in seen and body == sent
        assert fields.get("x-prefiller-host-port") == p.url.removeprefix("http://")
        return
    asked = json.loads(seen["p"][0])
    assert asked["max_tokens"] == 1
    if kind == "shared":
        assert body == sent and "kv_transfer_params" not in asked
        return
    name = asked["kv_transfer_params"]["remote_decoder"]["kv_request_id"]
    assert len(name) == 32
    params = {"kv_request_id": name, "remote_host": "127.0.0.1", "remote_port": 7777}
    assert json.loads(body)["kv_transfer_params"] == {"remote_prefiller": params}
    assert body.endswith(sent[1:])


def test_a_prefiller_that_stands_still_under_a_sidecar(engines, split):  # noqa: F811
    """kvway has no connection there: the decoder's time is its time."""
    router, (p,), (d,) = split("sidecar", {"timeouts.first_token": "3s"})
    p.signal(signal.SIGSTOP)
    assert router.ask("POST", CHAT, body=body_for(CHAT), timeout=20).status == 504
    p.signal(signal.SIGCONT)
    router.wait_idle()
