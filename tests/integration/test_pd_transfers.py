"""Ways of a prompt's KV to its decoder besides NIXL's pull: the answers are one worker's, whatever happens."""

import json
import signal
import threading
import time

import pytest

from rig.client import CHAT, COMPLETIONS, MESSAGES, Client, ask
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

KINDS = ["shared", "sidecar", "p2p", "nixl-push", "mooncake"]
ASKED_AT_ONCE = ["nixl-push", "mooncake"]  # transfers that have both workers asked at the same time


def listed(router):
    return ask(router.admin_port, "GET", "/workers").json()


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
        if kind == "mooncake" and theirs == kind:
            until(lambda: all(w.get("kv_source") for w in listed(router) if w["role"] == "prefill"), what="ids known")
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
    if (kind, path) == ("nixl-push", RESPONSES):
        # Engines name such requests by themselves, so that the two of a pair never match.
        assert router.metric("kvway_pd_plans_total", plan="whole") == 3 and nixl(p)["held"] == 0
        return
    until(lambda: prefills(router, "ok") == decodes(router, "transferred") == 3, what="all is counted")
    assert p.worker.stats()["prefilled_tokens"] > 1000
    assert d.worker.stats()["prefilled_tokens"] <= 3 * 16, "the decoder computed a prompt"
    assert nixl(d)["pulled"] == 3 and nixl(d)["wrong"] == nixl(d)["recomputed"] == 0
    router.wait_idle()


@pytest.mark.parametrize("kind", KINDS)
def test_engines_of_another_connector_compute_it(engines, split, kind):  # noqa: F811
    """They do not understand the parameters, and say nothing; or have none."""
    router, (p,), (d,) = split(kind, theirs={"sidecar": "p2p", "nixl-push": "p2p", "mooncake": "p2p"}.get(kind, "nixl"))
    check(router, engines(nixl=None), LONG)
    assert nixl(d)["pulled"] == 0 and d.worker.stats()["prefilled_tokens"] > 100
    router.wait_idle()


@pytest.mark.parametrize("fault", ["status=500", "reset-before-head", "close-after-head"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_prefill_that_fails_is_the_decoders(engines, split, kind, fault):  # noqa: F811
    router, (p,), (d,) = split(kind)
    p.worker.fail(fault)
    check(router, engines(nixl=None), LONG)
    result = "refused" if kind == "sidecar" else "fallback"
    computed = kind in ASKED_AT_ONCE and fault == "close-after-head"  # the decoder may have got the KV before that
    until(lambda: decodes(router, result) + computed * decodes(router, "transferred") == 1, what="counted")
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
    if kind not in ("sidecar", *ASKED_AT_ONCE):
        assert prefills(router, "ok") == (2 if kind == "shared" else 3)
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
        if leg == "decode" and kind not in ("sidecar", *ASKED_AT_ONCE):
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


@pytest.mark.parametrize("kind", ["shared", "sidecar", "p2p"])
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
    forged = ["X-Prefiller-Host-Port", "X-Prefiller-Url", "X-Encoder-Hosts-Ports", "X-Data-Parallel-Host-Port"]
    headers = [("Content-Type", "application/json"), *((name, "10.0.0.1:80") for name in forged)]
    assert router.ask("POST", CHAT, headers, body=sent).status == 200
    body, fields = seen["d"]
    if kind == "sidecar":
        assert "p" not in seen and body == sent
        assert fields.get("x-prefiller-host-port") == p.url.removeprefix("http://")
        assert not any(fields.get(name.lower()) for name in forged[1:])
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


@pytest.mark.parametrize("kind", ASKED_AT_ONCE)
def test_a_decoder_waits_for_a_slow_prefill(engines, split, kind):  # noqa: F811
    router, (p,), (d,) = split(kind, {"loops": 1})
    alone = engines(nixl=None)
    check(router, alone, f"first {LONG}")
    p.signal(signal.SIGSTOP)
    with Client(router.port, timeout=30) as client:
        client.send_request("POST", CHAT, body=body_for(CHAT))
        until(lambda: d.worker.ask("GET", "/load").json()["server_load"] == 1, what="the decoder was asked")
        p.signal(signal.SIGCONT)
        assert text_of(client.read(), CHAT, False) == plain_text(alone, CHAT, LONG)
    assert nixl(d)["pulled"] == 2
    assert decodes(router, "transferred") == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ASKED_AT_ONCE)
def test_a_prefiller_that_fails_while_the_decoder_waits(engines, split, kind, stream):  # noqa: F811
    router, (p,), (d,) = split(kind)
    alone = engines(nixl=None)
    check(router, alone, f"first {LONG}")
    p.worker.fail("delay-ms=300;status=500", 1)
    check(router, alone, LONG, stream)
    assert prefills(router, "error") == decodes(router, "fallback") == 1
    assert router.metric("kvway_worker_bad_answers_total", worker=d.worker.url) == 0
    router.wait_idle()


@pytest.mark.parametrize("kind", ASKED_AT_ONCE)
def test_a_prefiller_that_dies_while_the_decoder_waits(engines, split, kind):  # noqa: F811
    router, (p,), (d,) = split(kind)
    alone = engines(nixl=None)
    check(router, alone, f"first {LONG}")
    p.worker.fail("hang")
    with Client(router.port, timeout=30) as client:
        client.send_request("POST", CHAT, body=body_for(CHAT))
        until(lambda: router.sockets_to(p.worker.port) > 0, what="the prefiller was asked")
        p.kill()
        assert text_of(client.read(), CHAT, False) == plain_text(alone, CHAT, LONG)
    assert nixl(d)["wrong"] == 0
    router.wait_idle()


@pytest.mark.parametrize("kind", ASKED_AT_ONCE)
def test_a_prefiller_that_does_not_answer_while_the_decoder_waits(engines, split, kind):  # noqa: F811
    """Half of the time for the first token is the decoder's, which serves the request whole."""
    router, (p,), (d,) = split(kind, {"timeouts.first_token": "3s"})
    alone = engines(nixl=None)
    check(router, alone, f"first {LONG}")
    p.worker.fail("hang")
    check(router, alone, LONG, timeout=30)
    assert prefills(router, "timeout") == decodes(router, "fallback") == 1
    router.wait_idle()


@pytest.mark.parametrize("kind", ASKED_AT_ONCE)
def test_a_prefiller_that_is_another_engine(engines, split, kind):  # noqa: F811
    """The decoder gets the former one's id, is refused, and gets the request whole."""
    router, (p,), (d,) = split(kind, {"health.metrics_interval": "60s"})
    alone = engines(nixl=None)
    check(router, alone, f"first {LONG}")
    assert p.worker.ask("GET", "/sim/restart").status == 200
    for i in range(4):
        check(router, alone, f"after {i} {LONG}")
    assert nixl(d)["wrong"] == 0
    assert decodes(router, "fallback") + decodes(router, "refused") >= 1
    if kind == "nixl-push":
        assert decodes(router, "transferred") == 4, "its next answers said where it is"
    router.wait_idle()


def test_pushed_requests_of_one_id_do_not_get_each_others_kv(engines, split):  # noqa: F811
    router, (p,), (d,) = split("nixl-push", prefillers=1)
    alone = engines(nixl=None)
    clients = [Client(router.port) for _ in range(6)]
    for i, client in enumerate(clients):
        client.send_request("POST", CHAT, [("X-Request-Id", "same")], body=body_for(CHAT, f"{i} {LONG}"))
    for i, client in enumerate(clients):
        assert text_of(client.read(), CHAT, False) == plain_text(alone, CHAT, f"{i} {LONG}")
        client.close()
    assert decodes(router, "transferred") == 6
    router.wait_idle()


def test_pushed_legs_on_the_wire(workers, kvway):
    """The first answer says where the prefiller is; from then on both are asked at once, by one id of kvway's."""
    p, d = workers(2)
    seen = {"p": [], "d": []}
    params = {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[1]], "remote_engine_id": "e"}
    params |= {"remote_request_id": "r", "remote_host": "h", "remote_port": 5600, "tp_size": 2, "dcp_size": 1, "pp_size": 1}

    def prefill(ex):
        seen["p"].append((json.loads(ex.read_body()), ex.headers))
        ex.respond(200, (), {"kv_transfer_params": params})

    def decode(ex):
        body = ex.read_body()
        if body:
            seen["d"].append((json.loads(body), ex.headers))
            until(lambda: len(seen["p"]) == len(seen["d"]), what="the prefiller was asked, too")
        ex.respond(200, [("X-Request-Id", ex.headers.get("x-request-id", ""))], {"choices": []})  # as vLLM can

    p.script, d.script = prefill, decode
    entries = [{"url": p.url, "role": "prefill"}, {"url": d.url, "role": "decode"}]
    router = kvway([p, d], {**ALWAYS, "pd.transfer": "nixl-push", "workers": entries})
    known(router)
    for _ in range(2):
        got = router.ask("POST", CHAT, [("X-Request-Id", "mine")], body=body_for(CHAT))
        assert got.status == 200 and got.headers.get("x-request-id") == "mine"
    assert seen["d"][0][0]["kv_transfer_params"] == params
    ids = [headers.get("x-request-id") for _, headers in seen["d"]]
    assert ids == [headers.get("x-request-id") for _, headers in seen["p"]]
    assert ids[0] != ids[1] and all(name.startswith("mine-") for name in ids)
    told = seen["d"][1][0]["kv_transfer_params"]
    assert told.pop("remote_request_id") == ids[1].removeprefix("mine-")
    left = {k: v for k, v in params.items() if k not in ("remote_block_ids", "remote_request_id")}
    assert told == left


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_mooncake_legs_on_the_wire(workers, kvway, host):
    p, d = workers(2)
    url = p.url.replace("127.0.0.1", host)
    seen = {}

    def prefill(ex):
        if ex.path == "/query":
            seen["query"] = ex.headers
            ex.respond(200, (), {"0": {"engine_id": "engine-1", "worker_addr": {"0": {"0": "tcp://h:1"}}}})
            return
        seen["p"] = json.loads(ex.read_body())
        ex.respond(200, (), {"kv_transfer_params": None})

    def decode(ex):
        body = ex.read_body()
        if body:
            seen["d"] = json.loads(body)
            until(lambda: "p" in seen, what="the prefiller was asked, too")
        answer(ex)

    p.script, d.script = prefill, decode
    entries = [{"url": url, "role": "prefill", "kv_port": p.port, "api_key": "secret"}, {"url": d.url, "role": "decode"}]
    router = kvway([p, d], {**ALWAYS, "pd.transfer": "mooncake", "workers": entries})
    known(router)
    until(lambda: any(w.get("kv_source") for w in listed(router)), what="its id is known")
    assert "authorization" not in seen["query"], "the bootstrap server has no TLS"
    assert router.ask("POST", CHAT, body=body_for(CHAT)).status == 200
    asked, told = seen["p"]["kv_transfer_params"], seen["d"]["kv_transfer_params"]
    name = asked.pop("transfer_id")
    assert name.startswith("xfer-") and asked == {"do_remote_decode": True, "do_remote_prefill": False}
    assert told == {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "transfer_id": name,
        "remote_bootstrap_addr": url,
        "remote_engine_id": "engine-1",
    }


def test_without_a_bootstrap_server_nothing_is_split(workers, kvway):
    p, d = workers(2)
    entries = [{"url": p.url, "role": "prefill", "kv_port": 1}, {"url": d.url, "role": "decode"}]
    router = kvway([p, d], {**ALWAYS, "pd.transfer": "mooncake", "workers": entries})
    known(router)
    assert router.ask("POST", CHAT, body=body_for(CHAT)).status == 200
    assert router.metric("kvway_pd_plans_total", plan="whole") == 1
    assert not any(w.get("kv_source") for w in listed(router))


def test_a_prefiller_that_is_not_asked_has_no_prompt(engines, kvway):  # noqa: F811
    """The strategy picks it, but its bootstrap server does not answer: the prefix tree forgets the prompt."""
    p, d = engines("--transfer", "mooncake"), engines("--transfer", "mooncake")
    entries = [{"url": p.worker.url, "role": "prefill", "kv_port": 1}, {"url": d.worker.url, "role": "decode"}]
    router = kvway([p.worker, d.worker], {**ALWAYS, "pd.transfer": "mooncake", "workers": entries})
    known(router)
    question = body_for(CHAT, LONG)
    assert router.ask("POST", CHAT, body=question).status == 200
    assert router.metric("kvway_pd_plans_total", plan="whole") == 1
    shown = ask(router.admin_port, "POST", "/explain", body=question).json()
    hits = {w["worker"]: w["hit_tokens"] for w in shown["workers"]}
    assert hits[p.worker.url] == 0 and hits[d.worker.url] > 100


@pytest.mark.parametrize("kind", ["nixl", *KINDS])
def test_a_crowd_of_which_some_leave(engines, split, kind):  # noqa: F811
    """Six clients at once, before workers that break now and then: a client that stays has one worker's answer."""
    router, ps, ds = split(kind, {"retry.budget": 1.0, "retry.attempts": 8}, prefillers=2, decoders=2)
    alone = engines(nixl=None)
    expected = {i: plain_text(alone, CHAT, f"{i % 9} {LONG} {i}") for i in range(72)}
    wrong = []

    def client(number):
        for i in range(number, 72, 6):
            with Client(router.port, timeout=30) as conn:
                conn.send_request("POST", CHAT, body=body_for(CHAT, f"{i % 9} {LONG} {i}", stream=i % 2 == 0))
                if i % 7 == 3:
                    conn.reset()
                    continue
                got = conn.read()
                text = text_of(got, CHAT, i % 2 == 0) if got.status == 200 else got
                if text != expected[i]:
                    wrong.append((i, text))

    threads = [threading.Thread(target=client, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for fault in ("reset-before-head", "status=500", "stale-close", "close-after-head"):
        (ps + ds)[len(fault) % 4].worker.fail(fault, 1)
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert wrong == []
    assert all(nixl(d)["wrong"] == 0 for d in ds)
    assert router.metric("kvway_internal_errors_total") == 0
    router.wait_idle()
