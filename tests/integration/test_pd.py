"""Prefill and decode on different workers: whatever happens to either, answers are what one worker's are."""

import itertools
import json
import signal
import threading
import time

import pytest

from rig.client import CHAT, COMPLETIONS, MESSAGES, Client, ask, chat_body
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
from rig.wait import stays, until
from rig.worker import answer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, MESSAGES, RESPONSES])
def test_answers_are_those_of_one_worker(engines, parted, path, stream):
    alone = engines()
    router, (p,), (d,) = parted()
    for i in range(3):
        text = f"{i} {LONG}"
        got = router.ask("POST", path, body=body_for(path, text, stream=stream))
        assert text_of(got, path, stream) == plain_text(alone, path, text)
    assert nixl(p)["held"] == nixl(d)["pulled"] == 3
    assert nixl(d)["wrong"] == nixl(d)["recomputed"] == 0
    assert router.metric("kvway_pd_plans_total", plan="split") == 3
    assert prefills(router, "ok") == decodes(router, "transferred") == 3
    assert d.worker.stats()["prefilled_tokens"] <= 3, "the decoder computed a prompt"
    assert router.metric("kvway_pd_handover_seconds_count") == 3
    router.wait_idle()


def test_both_legs_on_the_wire(workers, kvway):
    """The prefiller generates one token; the decoder gets the client's bytes, and the parameters as they came."""
    p, d = workers(2)
    params = '{ "do_remote_prefill" : true,"remote_engine_id":"e\\u0031","remote_request_id":"r","remote_host":"h",'
    params += '"remote_port":5600,"remote_block_ids":[[1,2]],"unknown":{"a":[1.50,null]},"remote_num_tokens":9}'
    seen = {}

    def prefill(ex):
        seen["p"] = ex.read_body(), ex.headers
        ex.respond(200, [("content-type", "application/json")], b'{"id":"x","kv_transfer_params":%s}' % params.encode())

    def decode(ex):
        seen["d"] = ex.read_body(), ex.headers
        answer(ex)

    p.script, d.script = prefill, decode
    entries = [{"url": p.url, "role": "prefill"}, {"url": d.url, "role": "decode"}]
    router = kvway([p, d], {**ALWAYS, "workers": entries})
    known(router)
    sent = b'{ "model":"tiny","temperature":1.0, "max_tokens" : 77,"messages":[{"role":"user","content":"h\\u00e4 \xc3\xa4"}]}'
    got = router.ask("POST", CHAT, [("Content-Type", "application/json"), ("X-Request-Id", "one-id")], body=sent)
    assert got.status == 200
    asked = json.loads(seen["p"][0])
    assert asked["max_tokens"] == 1 and asked["kv_transfer_params"]["do_remote_decode"] is True
    assert asked["messages"] == json.loads(sent)["messages"]
    assert seen["d"][0] == b'{"kv_transfer_params":' + params.encode() + b"," + sent[1:]
    for _, headers in seen.values():
        assert headers.get("x-request-id") == "one-id"
    for body, headers in seen.values():
        assert int(headers.get("content-length")) == len(body)


def test_what_cannot_be_split_goes_whole_to_a_decoder(engines, parted):
    router, (p,), (d,) = parted()
    assert router.ask("POST", CHAT, body=body_for(CHAT, n=2)).status == 200
    assert router.ask("POST", COMPLETIONS, body=body_for(COMPLETIONS, ["a", "b"])).status == 200
    assert router.ask("POST", COMPLETIONS, body=body_for(COMPLETIONS, echo=True)).status in (200, 400)
    assert router.ask("POST", "/tokenize", body={"model": "tiny", "prompt": "a b"}).status == 200
    assert nixl(p)["held"] == 0 and p.worker.stats()["prompt_tokens"] == 0
    assert d.worker.stats()["prompt_tokens"] > 0
    assert decodes(router, "transferred") == 0


def test_short_prompts_stay_below_a_threshold(engines, parted):
    router, (p,), (d,) = parted({"pd.threshold": 200})
    check(router, d, "a short one")
    assert nixl(p)["held"] == 0
    check(router, engines(), LONG)
    assert nixl(p)["held"] == 1


def test_by_seconds_an_idle_decoder_prefills_by_itself(parted):
    """Elsewhere it would take as long, and the transfer besides."""
    router, (p,), _ = parted({"pd.threshold": -1})
    assert router.ask("POST", CHAT, body=body_for(CHAT)).status == 200
    assert nixl(p)["held"] == 0
    assert router.metric("kvway_pd_plans_total", plan="here") == 1


def test_by_seconds_a_busy_decoder_is_spared(parted):
    """Prefilling there would delay the answers that it decodes."""
    router, (p,), (d,) = parted({"pd.threshold": -1}, options=("--profile", "reference", "--default-tokens", "4000"))
    with Client(router.port) as held:
        streams = [Client(router.port) for _ in range(24)]
        for i, client in enumerate(streams):
            client.send_request("POST", CHAT, body=chat_body(f"story {i}", stream=True, max_tokens=4000))
            assert client.read_head().status == 200
        until(lambda: d.worker.stats()["running"] == 24, what="24 answers under way")
        held.send_request("POST", CHAT, body=chat_body("w " * 12000, stream=True, max_tokens=2))
        until(lambda: nixl(p)["held"] == 1, 20, "a long prompt was prefilled elsewhere")
        for client in streams:
            client.close()
    router.wait_idle()


@pytest.mark.parametrize("threshold", [-1, 1000000])
@pytest.mark.parametrize("whole", [True, False])
def test_a_prefiller_serves_whole_requests_where_it_may(parted, whole, threshold):
    """The decoder's contexts delay an answer by more than the second that a prefiller costs more. A threshold compares nothing."""
    config = {"pd.threshold": threshold, "pd.whole": whole, "routing.context_ns_per_token": 300000, "health.interval": "5s"}
    router, (p,), (d,) = parted(config, options=("--profile", "reference", "--default-tokens", "4000"))
    streams = [Client(router.port) for _ in range(10)]
    for i, client in enumerate(streams):
        client.send_request("POST", CHAT, body=chat_body(f"story {i} " + "w " * 800, stream=True, max_tokens=4000))
        assert client.read_head().status == 200
    strays = router.metric("kvway_pd_plans_total", plan="prefiller_here")
    explained = ask(router.admin_port, "POST", "/explain", body=chat_body("new " + "w " * 800)).json()
    if whole and threshold < 0:
        assert strays > 0 and p.worker.stats()["prompt_tokens"] > 0
        assert explained["worker"] == p.worker.url and explained["reason"] == "prefiller"
        why = next(step["why"] for step in explained["steps"] if step["step"] == "split")
        assert f"{p.worker.url} alone" in why
    else:
        assert strays == 0 and explained["worker"] == d.worker.url
    for client in streams:
        client.close()
    router.wait_idle()
    assert router.metric("kvway_decisions_total", strategy="prefixaware", reason="prefiller") == strays


@pytest.mark.parametrize("whole", [True, False])
def test_a_request_does_not_wait_for_a_decoder_while_a_prefiller_may_have_it(parted, whole):
    """Others have filled the decoder: admission sends nothing there, neither a whole request nor a prefilled one."""
    options = ("--profile", "reference", "--max-seqs", "1", "--prefill-rate", "2000")
    router, (p,), (d,) = parted({"pd.threshold": -1, "pd.whole": whole}, options=options)
    others = [Client(d.worker.port) for _ in range(5)]
    for i, client in enumerate(others):
        client.send_request("POST", CHAT, body=chat_body(f"{i} " + "w " * 8000, stream=True, max_tokens=4000))
    seconds = "kvway_worker_foreign_queue_seconds"
    until(lambda: router.metric(seconds, worker=d.worker.url) > 4, 20, "the decoder is seen to be busy")
    with Client(router.port) as client:
        client.send_request("POST", CHAT, [("X-Request-Id", "mine")], body=body_for(CHAT))
        if whole:
            assert client.read().status == 200
            assert router.metric("kvway_pd_plans_total", plan="prefiller_here") == 1
            assert '"prefiller"' in ask(router.admin_port, "GET", "/trace?id=mine").body.decode()
        else:
            until(lambda: router.metric("kvway_waiting_requests") == 1, what="it waits")
    assert nixl(p)["held"] == 0
    for client in others:
        client.close()
    router.wait_idle()


@pytest.mark.parametrize("more, n", [({"routing.strategy": "roundrobin"}, 1), ({"pd.transfer": "off"}, 1), ({}, 2)])
def test_what_is_not_priced_stays_off_prefillers(parted, more, n):
    router, (p,), _ = parted({"pd.threshold": -1, "pd.whole": True, **more})
    for i in range(8):
        assert router.ask("POST", CHAT, body=body_for(CHAT, f"{i} {LONG}", n=n)).status == 200
    assert p.worker.stats()["prompt_tokens"] == 0


def test_no_prefiller_the_decoder_serves_alone(engines, parted):
    router, (p,), (d,) = parted()
    p.kill()
    check(router, d, LONG)
    until(lambda: router.metric("kvway_worker_health", worker=p.worker.url) == 2, 10, "the prefiller is down")
    check(router, d, f"again {LONG}")
    assert router.metric("kvway_pd_plans_total", plan="decoder_alone") >= 1
    assert nixl(d)["pulled"] == 0


def test_no_decoder_the_prefiller_serves_alone(parted):
    router, (p,), (d,) = parted()
    d.kill()
    until(lambda: router.metric("kvway_worker_health", worker=d.worker.url) == 2, 10, "the decoder is down")
    check(router, p, LONG)
    assert router.metric("kvway_pd_plans_total", plan="prefiller_alone") >= 1
    assert nixl(p)["held"] == 0


@pytest.mark.parametrize(
    "fault, result",
    [
        ("status=500", "error"),
        ("status=400", "error"),
        ("reset-before-head", "lost"),
        ("close-after-head", "lost"),
        ("short-body=100", "lost"),
        ("malformed-head", "lost"),
    ],
)
def test_a_prefill_that_fails_is_the_decoders(engines, parted, fault, result):
    router, (p,), (d,) = parted()
    p.worker.fail(fault)
    check(router, engines(), LONG)
    assert prefills(router, result) == decodes(router, "fallback") == 1
    p.worker.fail("")
    router.wait_idle()


def test_without_fallback_the_client_gets_the_error(parted):
    router, (p,), (d,) = parted({"pd.fallback": False})
    p.worker.fail("status=500")
    got = router.ask("POST", CHAT, body=body_for(CHAT))
    assert got.status == 502 and b"prefilled" in got.body
    assert decodes(router, "failed") == 1
    router.wait_idle()


def test_a_prefiller_without_a_connector_is_noticed(engines, parted):
    router, _, (d,) = parted(nixl=None)
    check(router, engines(), LONG)
    assert prefills(router, "no_params") == decodes(router, "fallback") == 1


def test_a_kept_connection_to_the_prefiller_that_went_stale(engines, parted):
    router, (p,), _ = parted({"loops": 1})
    alone = engines()
    check(router, alone, LONG)
    p.worker.fail("stale-close", 1)
    check(router, alone, f"two {LONG}")
    assert prefills(router, "ok") == 2


def test_a_kept_connection_to_the_decoder_that_went_stale(engines, parted):
    """It may have begun to pull: what it got is not sent again."""
    router, (p,), (d,) = parted({"loops": 1})
    alone = engines()
    check(router, alone, LONG)
    d.worker.fail("stale-close", 1)
    check(router, alone, f"two {LONG}")
    assert decodes(router, "repeated") == 1
    assert prefills(router, "ok") == 3 and nixl(d)["wrong"] == 0


def test_a_decoder_that_breaks_is_followed_by_another_prefill(engines, parted):
    router, (p,), ds = parted(decoders=2)
    alone = engines()
    ds[0].worker.fail("reset-before-head", 1)
    for i in range(40):
        check(router, alone, f"{i} {LONG}")
        if decodes(router, "repeated"):
            break
    assert decodes(router, "repeated") == 1
    assert all(nixl(d)["wrong"] == 0 for d in ds)
    router.wait_idle()


@pytest.mark.parametrize("stream", [False, True])
def test_a_decoder_that_refuses_gets_it_whole(engines, parted, stream):
    router, (p,), (d,) = parted()
    d.worker.fail("status=500", 1)
    check(router, engines(), LONG, stream)
    assert decodes(router, "refused") == 1 and nixl(d)["pulled"] == 0
    assert router.metric("kvway_worker_bad_answers_total", worker=d.worker.url) == 0


def test_a_prefiller_that_dies_with_the_kv(workers, engines, kvway):
    """It answers, and is gone when the decoder pulls: vLLM says 500, and serves the request whole."""
    (p,) = workers(1)
    d, alone = engines(), engines()
    params = {"do_remote_prefill": True, "remote_engine_id": "e", "remote_request_id": "r", "remote_host": "127.0.0.1"}
    params |= {"remote_port": 1, "remote_block_ids": [[1]]}
    p.script = lambda ex: ex.respond(
        200, [("content-type", "application/json")], json.dumps({"kv_transfer_params": params}).encode()
    )
    entries = [{"url": p.url, "role": "prefill"}, {"url": d.worker.url, "role": "decode"}]
    router = kvway([p, d.worker], {**ALWAYS, "workers": entries})
    known(router)
    for stream in (False, True):
        check(router, alone, f"{stream} {LONG}", stream)
    assert decodes(router, "refused") == 2 == nixl(d)["refused"]


@pytest.mark.parametrize("leg", ["prefill", "decode"])
def test_clients_that_leave(parted, leg):
    router, (p,), (d,) = parted()
    slow = p if leg == "prefill" else d
    slow.worker.fail("hang")
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=body_for(CHAT))
        if leg == "prefill":
            until(lambda: router.sockets_to(p.worker.port) > 0, what="the prefiller was asked")
        else:
            until(lambda: router.metric("kvway_pd_handover_seconds_count") == 1, what="the decoder was asked")
    if leg == "prefill":
        until(lambda: prefills(router, "cancelled") == 1, what="the leg was given up")
    else:
        until(lambda: decodes(router, "left") == 1, what="the decode was given up")
    router.wait_idle()
    slow.worker.fail("")


def test_a_prefiller_that_stands_still_is_left(engines, parted):
    """Its probes find that out, long before any timeout of the request."""
    router, (p,), (d,) = parted({"health.timeout": "300ms"})
    alone = engines()
    p.worker.fail("hang")
    got = {}
    thread = threading.Thread(target=lambda: got.update(a=router.ask("POST", CHAT, body=body_for(CHAT), timeout=60)))
    thread.start()
    until(lambda: router.sockets_to(p.worker.port) > 0, what="the prefiller was asked")
    p.signal(signal.SIGSTOP)
    thread.join()
    assert text_of(got["a"], CHAT, False) == plain_text(alone, CHAT, LONG)
    assert prefills(router, "lost") == decodes(router, "fallback") == 1
    p.signal(signal.SIGCONT)


def test_a_decoder_that_is_held_back_never_answers_from_freed_blocks(engines, parted):
    """It stands still while the prefiller's lease passes, and then reads what is in the blocks by now."""
    router, (p,), (one, two) = parted({"pd.lease": "2s", "retry.attempts": 3, "health.interval": "30s"}, decoders=2, nixl="lease=2")
    alone = engines()
    check(router, alone, LONG)
    stopped = one if nixl(one)["pulled"] else two
    other = two if stopped is one else one
    texts = [f"{i} {LONG}" for i in range(12)]
    got = {}

    def ask_for(text):
        got[text] = router.ask("POST", CHAT, body=body_for(CHAT, text), timeout=40)

    stopped.signal(signal.SIGSTOP)
    threads = [threading.Thread(target=ask_for, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    until(lambda: len(got) == len(texts), 40, "all are answered, by the other one if need be")
    stopped.signal(signal.SIGCONT)
    for thread in threads:
        thread.join()
    for text in texts:
        assert text_of(got[text], CHAT, False) == plain_text(alone, CHAT, text)
    assert nixl(other)["wrong"] == 0
    assert decodes(router, "expired") >= 1
    router.wait_idle()


def test_a_decoder_whose_prefiller_stands_still_is_left(engines, parted):
    """It would wait for the KV as long as that, though its engine moves."""
    router, (p,), (d,) = parted({"pd.lease": "2s", "health.timeout": "300ms"}, options=("--profile", "reference"))
    alone = engines()
    check(router, alone, LONG)
    with Client(router.port) as other, Client(router.port, timeout=60) as client:
        other.send_request("POST", CHAT, body=chat_body("short", n=2, stream=True, max_tokens=4000))
        other.read_head()
        d.worker.fail("delay-ms=1000", 1)
        before = prefills(router, "ok")
        client.send_request("POST", CHAT, body=body_for(CHAT, f"2 {LONG}"))
        until(lambda: prefills(router, "ok") > before, what="it is prefilled")
        p.signal(signal.SIGSTOP)
        assert text_of(client.read(), CHAT, False) == plain_text(alone, CHAT, f"2 {LONG}")
    assert decodes(router, "expired") == 1
    p.signal(signal.SIGCONT)
    router.wait_idle()


def test_another_engine_id_is_tried_by_one_request(engines, parted):
    router, (p,), (d,) = parted()
    alone = engines()
    check(router, alone, LONG)
    assert p.worker.ask("GET", "/sim/restart").status == 200
    d.worker.fail("delay-ms=1500", 1)
    got = {}

    def probe():
        got["probe"] = router.ask("POST", CHAT, body=body_for(CHAT, f"probe {LONG}"), timeout=20)

    thread = threading.Thread(target=probe)
    thread.start()
    until(lambda: prefills(router, "ok") == 2, what="the first one is with the decoder")
    check(router, alone, f"meanwhile {LONG}")
    assert decodes(router, "quarantined") == 1
    thread.join()
    assert text_of(got["probe"], CHAT, False) == plain_text(alone, CHAT, f"probe {LONG}")
    check(router, alone, f"after {LONG}")
    assert decodes(router, "transferred") == 3 and decodes(router, "quarantined") == 1
    assert nixl(d)["wrong"] == 0


def test_admission_splits_what_it_admits(engines, parted):
    router, (p,), (d,) = parted({"admission.enabled": True})
    check(router, engines(), LONG)
    assert nixl(p)["held"] == nixl(d)["pulled"] == 1


@pytest.mark.parametrize("strategy", ["session", "roundrobin", "kvaware"])
def test_other_strategies(engines, parted, strategy):
    """A session keeps its decoder, whichever worker prefills for it; turns go on."""
    router, (p,), ds = parted({"routing.strategy": strategy}, decoders=2)
    alone = engines()
    for i in range(6):
        got = router.ask("POST", CHAT, [("x-session-id", "one")], body=body_for(CHAT, f"{i} {LONG}"))
        assert text_of(got, CHAT, False) == plain_text(alone, CHAT, f"{i} {LONG}")
    pulled = sorted(nixl(d)["pulled"] for d in ds)
    assert nixl(p)["held"] == sum(pulled) == 6
    assert pulled == {"session": [0, 6], "roundrobin": [3, 3]}.get(strategy, pulled)


def test_it_is_shown(engines, parted):
    router, (p,), (d,) = parted()
    assert router.ask("POST", CHAT, [("X-Request-Id", "shown")], body=body_for(CHAT)).status == 200
    listed = {w["url"]: w["role"] for w in ask(router.admin_port, "GET", "/workers").json()}
    assert listed == {p.worker.url: "prefill", d.worker.url: "decode"}
    assert router.metric("kvway_workers_by_role", role="decode") == 1
    way = ask(router.admin_port, "GET", "/trace?id=shown").body.decode()
    told = way
    for part in ('"prefill"', '"prefilled"', '"decode"', '"transferred"', p.worker.url, d.worker.url):
        assert part in told
    explained = ask(router.admin_port, "POST", "/explain", body=body_for(CHAT, f"new {LONG}")).json()
    assert explained["worker"] == d.worker.url and explained["reason"] == "split"
    why = next(step["why"] for step in explained["steps"] if step["step"] == "split")
    assert p.worker.url in why and "transfer" in why


@pytest.mark.parametrize("long", [True, False])
def test_a_decoder_that_recomputes_in_silence_is_noticed(workers, kvway, long):
    """It does not understand the parameters, and its metrics show that nothing came from elsewhere: as with prompts
    that fill no block."""
    p, d = workers(2)
    params = {"do_remote_prefill": True, "remote_engine_id": "e", "remote_request_id": "r", "remote_host": "h"}
    reply = json.dumps({"kv_transfer_params": {**params, "remote_port": 1}}).encode()
    p.script = lambda ex: ex.respond(200, [("content-type", "application/json")], reply)
    d.metrics = 'vllm:external_prefix_cache_hits_total{engine="0"} 7\n'
    entries = [{"url": p.url, "role": "prefill"}, {"url": d.url, "role": "decode"}]
    router = kvway([p, d], {**ALWAYS, "workers": entries})
    known(router)

    texts = (f"{i} {LONG}" if long else f"{i}" for i in itertools.count())

    def noticed():
        assert router.ask("POST", CHAT, body=body_for(CHAT, next(texts))).status == 200
        return router.metric("kvway_pd_recomputed_total", worker=d.url) > 0

    if long:
        until(noticed, 20, "its metrics stand still")
    else:
        stays(lambda: not noticed(), 2, "nothing to notice")
    assert decodes(router, "transferred") > 0


def test_transfers_that_work_are_not_called_recomputed(engines, parted):
    router, _, (d,) = parted()
    for i in range(10):
        assert router.ask("POST", CHAT, body=body_for(CHAT, f"{i} {LONG}")).status == 200
    reads = len(router.metrics())
    until(lambda: d.worker.stats()["nixl"]["pulled"] == 10 and reads, what="all were pulled")
    assert router.metric("kvway_pd_recomputed_total") == 0


PARAMS = {"do_remote_prefill": True, "remote_engine_id": "e", "remote_request_id": "r", "remote_host": "h", "remote_port": 1}


def scripted(workers, kvway, config=None, **params):
    """(router, prefiller, decoder, the decoder's bodies): scripted workers; the prefiller answers with these parameters."""
    p, d = workers(2)
    reply = json.dumps({"kv_transfer_params": {**PARAMS, **params}}).encode()
    p.script = lambda ex: ex.respond(200, [("content-type", "application/json")], reply)
    bodies = []

    def decode(ex):
        body = ex.read_body()
        if body:
            bodies.append(json.loads(body))
        answer(ex)

    d.script = decode
    entries = [{"url": p.url, "role": "prefill"}, {"url": d.url, "role": "decode"}]
    router = kvway([p, d], {**ALWAYS, "workers": entries, **(config or {})})
    known(router)
    return router, p, d, bodies


def test_both_legs_of_a_body_of_many_blocks(workers, kvway):
    router, p, _, bodies = scripted(workers, kvway)
    reply, asked = p.script, []

    def prefill(ex):
        asked.append(json.loads(ex.read_body()))
        reply(ex)

    p.script = prefill
    for i in range(3):
        sent = body_for(CHAT, f"{i} {LONG}", metadata={"number": [f"{i} {n}" for n in range(40000)]})
        assert router.ask("POST", CHAT, body=sent).status == 200
        params = asked[i].pop("kv_transfer_params")
        assert params["do_remote_decode"] and asked[i] == {**sent, "max_tokens": 1}
        assert bodies[i] == {**sent, "kv_transfer_params": PARAMS}
    router.wait_idle()


@pytest.mark.parametrize("strategy", ["kvaware", "session", "roundrobin"])
def test_what_is_past_half_of_its_lease_is_not_handed_over(workers, kvway, strategy):
    router, _, _, bodies = scripted(workers, kvway, {"routing.strategy": strategy}, remote_blocks_expiry_time=time.time() + 0.5)
    assert router.ask("POST", CHAT, body=body_for(CHAT)).status == 200
    assert len(bodies) == 1 and "kv_transfer_params" not in bodies[0]
    assert decodes(router, "expired") == prefills(router, "ok") == 1
    assert decodes(router, "quarantined") == decodes(router, "transferred") == 0


def test_a_requests_own_time_is_not_the_prefillers_fault(parted):
    router, (p,), _ = parted({"timeouts.request": "500ms"})
    p.worker.fail("hang")
    assert router.ask("POST", CHAT, body=body_for(CHAT)).status == 504
    assert prefills(router, "cancelled") == 1 and prefills(router, "timeout") == 0
    assert router.metric("kvway_worker_bad_answers_total", worker=p.worker.url) == 0
    p.worker.fail("")
    router.wait_idle()


def test_a_clients_error_of_the_decoder_is_counted_as_refused(parted):
    router, _, (d,) = parted()
    d.worker.fail("status=400", 1)
    assert router.ask("POST", CHAT, body=body_for(CHAT)).status == 400
    until(lambda: decodes(router, "refused") == 1, what="counted")
    assert decodes(router, "repeated") == 0


@pytest.mark.parametrize("fallback", [True, False])
@pytest.mark.parametrize("more", [{"echo": True}, {"n": 1.0}, {"prompt_logprobs": 1}, {"kv_transfer_params": {"a": 1}}])
def test_a_body_that_must_stay_whole_is_no_failed_prefill(workers, kvway, fallback, more):
    router, p, _, bodies = scripted(workers, kvway, {"pd.fallback": fallback})
    sent = body_for(COMPLETIONS, **more)
    assert router.ask("POST", COMPLETIONS, body=sent).status == 200
    assert bodies == [sent]
    assert router.metric("kvway_pd_plans_total", plan="whole") == 1
    assert router.metric("kvway_pd_plans_total", plan="split") == 0
    for result in ("ok", "lost", "error"):
        assert prefills(router, result) == 0
    assert decodes(router, "fallback") == decodes(router, "failed") == 0
    assert router.metric("kvway_worker_bad_answers_total", worker=p.url) == 0


def test_a_clients_error_of_the_prefiller_is_left_to_the_decoder(parted):
    """Also without pd.fallback: the client gets what the decoder says of its request."""
    router, (p,), (d,) = parted({"pd.fallback": False})
    p.worker.fail("status=400", 1)
    d.worker.fail("status=400", 1)
    assert router.ask("POST", CHAT, body=body_for(CHAT)).status == 400
    assert prefills(router, "error") == 1
    assert router.metric("kvway_worker_bad_answers_total", worker=p.worker.url) == 0


def test_bytes_behind_the_prefillers_answer_are_not_the_next_answers(workers, kvway):
    router, p, _, bodies = scripted(workers, kvway, {"loops": 1})
    reply = json.dumps({"kv_transfer_params": PARAMS}).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(reply)
    p.script = lambda ex: ex.send(head + reply + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    for i in range(2):
        assert router.ask("POST", CHAT, body=body_for(CHAT, f"{i} {LONG}")).status == 200
    assert prefills(router, "ok") == 2
    assert [b["kv_transfer_params"] for b in bodies] == [PARAMS, PARAMS]


@pytest.mark.parametrize("fallback", [True, False])
def test_a_prefill_names_the_rank(workers, kvway, fallback):
    """A server that refuses the number has done nothing wrong, and the decoder serves the request whole."""
    p, d = workers(2)
    numbers = []

    def prefill(ex):
        ex.read_body()
        number = ex.headers.get("x-data-parallel-rank")
        if number is None:
            answer(ex)
            return
        numbers.append(number)
        if len(numbers) == 1:
            ex.respond(400, (), {"object": "error", "message": f"data_parallel_rank {number} is out of range [0, 0)."})
        else:
            ex.respond(200, (), {"kv_transfer_params": PARAMS})

    p.script = prefill
    entries = [{"url": p.url, "role": "prefill", "ranks": 2}, {"url": d.url, "role": "decode"}]
    router = kvway([p, d], {**ALWAYS, "workers": entries, "pd.fallback": fallback})
    known(router)
    assert router.ask("POST", CHAT, body=body_for(CHAT)).status == 200
    assert numbers in (["0"], ["1"])
    assert prefills(router, "error") == decodes(router, "fallback") == 1
    assert router.metric("kvway_rank_refusals_total") == 1
    assert router.metric("kvway_worker_bad_answers_total") == 0
