"""kvaware's exact tokens: found out before a worker is picked, in time or not at all.

The workers are kvsim, which publish events and tokenize; what they cache is what their answers say.
"""

import json
import random
import signal
import subprocess
import threading
import time

import pytest

from rig.client import CHAT, COMPLETIONS, Client, ask, crowd
from rig.router import SANITIZED
from rig.wait import until, unused_port

BLOCK = 16
EVENTS = {"enable_kv_cache_events": True, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"}
WORDS = "sea king ship isle wind tide dawn boat tale keys memo coin".split()


def text(seed, words=200):
    rng = random.Random(seed)
    return " ".join(rng.choices(WORDS, k=words))


def chat(content, **more):
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return {"model": "tiny", "messages": messages, "max_tokens": 4, **more}


@pytest.fixture
def fleet(kvsim, kvway):
    """fleet({key: value}, count): simulated engines that publish what they cache, and a kvaware
    router that has received the events of all."""

    def make(config=None, count=2, options=()):
        workers = kvsim(count, "--kv-events-config", json.dumps(EVENTS), *options)
        router = kvway(
            workers,
            {
                "routing.strategy": "kvaware",
                "http.decision_headers": "always",
                "kvaware.tokens.timeout": "20s",
                **(config or {}),
            },
        )
        until(lambda: coverages(router) == 2.0 * count, 15, "all workers are heard")
        return workers, router

    return make


def coverages(router):
    return router.metric("kvway_worker_cache_coverage", reporter="engine")


def prompts(router, reason):
    return router.metric("kvway_kvaware_prompts_total", tokens=reason)


def explain(router, path, body):
    answer = ask(router.admin_port, "POST", f"/explain?path={path}", body=body, timeout=30)
    assert answer.status == 200, answer
    return answer.json()


def usage(answer):
    """Prompt tokens and cached ones, in any API's words."""
    said = answer.json()["usage"]
    if "cache_read_input_tokens" in said:
        cached = said["cache_read_input_tokens"] or 0
        return said["input_tokens"] + cached, cached
    details = said.get("prompt_tokens_details") or said.get("input_tokens_details")
    return said.get("prompt_tokens", said.get("input_tokens")), details["cached_tokens"]


def predicted(answer):
    return int(answer.headers.get("x-kvway-predicted-cached-tokens"))


def send(router, path, body, headers=()):
    answer = router.ask("POST", path, headers, body=body, timeout=30)
    assert answer.status == 200, answer
    return answer


def told(router, path, body, tokens):
    """Waits until the events of a prompt that was served have arrived."""
    whole = (tokens - 1) // BLOCK * BLOCK

    def known():
        said = explain(router, path, body)
        return any(w["exact"] and w["hit_tokens"] == whole for w in said["workers"])

    until(known, 10, f"all {whole} cached tokens of the prompt are known")


# --- predictions --------------------------------------------------------------------------------


def conversation(router, turns=5):
    messages = [{"role": "system", "content": text(1)}, {"role": "user", "content": text(2, 40)}]
    for turn in range(turns):
        body = chat(messages)
        answer = send(router, CHAT, body)
        tokens, cached = usage(answer)
        assert answer.headers.get("x-kvway-reason") == ("load" if turn == 0 else "kvaware")
        assert abs(predicted(answer) - cached) <= BLOCK, (turn, predicted(answer), cached)
        assert turn == 0 or cached > BLOCK * 10
        told(router, CHAT, body, tokens)
        reply = answer.json()["choices"][0]["message"]["content"]
        messages += [
            {"role": "assistant", "content": reply},
            {"role": "user", "content": text(10 + turn, 30)},
        ]


def test_a_conversation_is_predicted_to_the_block(fleet):
    workers, router = fleet()
    conversation(router)
    assert prompts(router, "exact") == 5
    # At the first prompt kvway did not know yet how large the engines' blocks are.
    assert router.metric("kvway_worker_exact_right_total") >= 4
    assert router.metric("kvway_worker_exact_wrong_total") == 0
    assert router.metric("kvway_kvaware_tokenize_asked_total") == 5  # explanations had them cached
    assert router.metric("kvway_kvaware_tokenize_inflight") == 0


@pytest.mark.parametrize(
    "path, body",
    [
        (COMPLETIONS, {"prompt": text(3), "max_tokens": 2}),
        (COMPLETIONS, {"prompt": [text(4)], "max_tokens": 2}),
        (COMPLETIONS, {"prompt": list(range(7, 400)), "max_tokens": 2}),
        (COMPLETIONS, {"prompt": [list(range(9, 400))], "max_tokens": 2}),
        (COMPLETIONS, {"prompt": text(5), "max_tokens": 2, "cache_salt": "a b"}),
        ("/invocations", {"prompt": text(3), "max_tokens": 2}),
        ("/invocations", {"max_tokens": 2, "messages": [{"role": "user", "content": text(9)}]}),
        ("/v1/responses", {"input": text(6), "max_output_tokens": 2}),
        ("/v1/responses", {"input": text(7), "instructions": text(8, 30), "max_output_tokens": 2}),
        ("/v1/messages", {"messages": [{"role": "user", "content": text(9)}], "max_tokens": 2}),
        (
            "/v1/messages",
            {
                "system": [{"type": "text", "text": text(10, 30)}],
                "messages": [{"role": "user", "content": [{"type": "text", "text": text(11)}]}],
                "max_tokens": 2,
            },
        ),
    ],
)
def test_prompts_of_every_kind_are_known_again(fleet, path, body):
    workers, router = fleet()
    body = {"model": "tiny", **body}
    tokens, _ = usage(send(router, path, body))
    told(router, path, body, tokens)
    again = send(router, path, body)
    assert again.headers.get("x-kvway-reason") == "kvaware"
    assert predicted(again) == usage(again)[1] == (tokens - 1) // BLOCK * BLOCK
    assert prompts(router, "exact") == 2


def test_another_salt_is_another_prompt(fleet):
    workers, router = fleet()
    body = {"model": "tiny", "prompt": text(20), "max_tokens": 2, "cache_salt": "one"}
    tokens, _ = usage(send(router, COMPLETIONS, body))
    told(router, COMPLETIONS, body, tokens)
    other = send(router, COMPLETIONS, {**body, "cache_salt": "two"})
    assert predicted(other) == usage(other)[1] == 0


def test_traffic_past_the_router_is_known(fleet):
    workers, router = fleet()
    body = chat(text(21))
    tokens, _ = usage(workers[1].ask("POST", CHAT, body=body))
    told(router, CHAT, body, tokens)
    answer = send(router, CHAT, body)
    assert answer.headers.get("x-kvway-worker") == workers[1].url
    assert predicted(answer) == usage(answer)[1] > 0


# --- why not ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path, body",
    [
        (COMPLETIONS, {"prompt": [text(30), text(31)]}),
        (CHAT, {**chat(text(32)), "truncate_prompt_tokens": 5}),
        ("/v1/responses", {"input": [{"type": "function_call_output", "call_id": "a", "output": "b"}]}),
    ],
)
def test_prompts_whose_tokens_no_event_reports(fleet, path, body):
    workers, router = fleet()
    router.ask("POST", path, body={"model": "tiny", **body}, timeout=30)
    assert prompts(router, "no_tokens") == 1
    assert prompts(router, "exact") == 0


def test_no_worker_is_asked_where_none_reports_what_it_holds(kvsim, kvway):
    workers = kvsim(2)
    router = kvway(workers, {"routing.strategy": "kvaware"})
    send(router, CHAT, chat(text(33)))
    assert prompts(router, "no_view") == 1
    assert router.metric("kvway_kvaware_tokenize_asked_total") == 0


def test_no_worker_is_asked_where_there_is_no_choice(fleet):
    workers, router = fleet(count=1)
    send(router, CHAT, chat(text(34)))
    assert prompts(router, "no_choice") == 1
    assert router.metric("kvway_kvaware_tokenize_asked_total") == 0


def fail(workers, spec, count=1):
    for worker in workers:
        worker.fail(spec, count)


def test_what_comes_late_is_not_waited_for_but_kept(fleet):
    workers, router = fleet({"kvaware.tokens.timeout": "50ms"})
    fail(workers, "delay-ms=400")
    body = chat(text(35))
    send(router, CHAT, body)
    assert prompts(router, "timeout") == 1
    until(lambda: router.metric("kvway_kvaware_tokenize_answered_total") == 1, 10, "the late answer")
    fail(workers, "delay-ms=0")
    send(router, CHAT, body)
    assert prompts(router, "exact") == 1
    assert router.metric("kvway_kvaware_tokenize_cached_total") == 1
    assert router.metric("kvway_kvaware_tokenize_inflight") == 0


def test_a_worker_that_fails_is_followed_by_another(fleet):
    workers, router = fleet()
    workers[0].fail("reset-before-head", 1)
    for i in range(4):  # they take turns: the first worker's fault meets a question or a prompt
        send(router, CHAT, chat(text(36 + i)))
    assert prompts(router, "exact") == 4


def test_without_an_answer_it_goes_by_text(fleet):
    workers, router = fleet()
    fail(workers, "status=500")
    send(router, CHAT, chat(text(41)))
    assert prompts(router, "failed") == 1
    send(router, CHAT, chat(text(42)))
    assert prompts(router, "exact") == 1


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's own memory is not the router's")
def test_prompts_under_way_to_tokenize_count(fleet):
    """The body, its copy and what it is converted into."""
    workers, router = fleet({"loops": 1})
    fail(workers, "delay-ms=6000", 40)
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "a " * 500_000}], "max_tokens": 2})
    before = router.rss()
    with crowd(router.port, 20) as clients:
        for client in clients:
            client.send_request("POST", "/v1/messages", body=body.encode())
        until(lambda: router.metric("kvway_kvaware_tokenize_inflight") == 20, 10, "all are asked about")
        until(lambda: router.metric("kvway_body_bytes") > 3 * 20 * len(body), 10, "all are counted")
        grown = router.rss() - before - (8 << 20)
        assert router.metric("kvway_body_bytes") > 0.8 * grown, grown
    until(lambda: router.metric("kvway_body_bytes") == 0, 20, "given back")


def test_more_at_once_than_may_be_asked_about(fleet):
    workers, router = fleet({"kvaware.tokens.inflight": 1, "loops": 1})
    fail(workers, "delay-ms=1500")
    threads = [
        threading.Thread(target=send, args=(router, CHAT, chat(text(50 + i)))) for i in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert prompts(router, "busy") >= 1
    assert prompts(router, "busy") + prompts(router, "exact") == 3


# --- while it waits -----------------------------------------------------------------------------


def test_a_client_that_leaves_while_its_tokens_are_asked_for(fleet):
    workers, router = fleet()
    fail(workers, "delay-ms=600")
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat(text(60)))
        until(lambda: router.metric("kvway_kvaware_tokenize_inflight") == 1, 5, "it is asked about")
    until(lambda: router.metric("kvway_client_gone_total") == 1, 5, "kvway sees that it is gone")
    router.wait_idle()
    until(lambda: router.metric("kvway_kvaware_tokenize_inflight") == 0, 5, "the job is released")
    assert sum(w.stats()["finished"] for w in workers) == 0  # none of them got the prompt
    fail(workers, "delay-ms=0")
    send(router, CHAT, chat(text(60)))
    assert router.metric("kvway_kvaware_tokenize_cached_total") == 1


def test_a_drain_waits_for_what_waits(fleet):
    workers, router = fleet({"drain.timeout": "20s"})
    fail(workers, "delay-ms=500")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(send(router, CHAT, chat(text(61)))))
    thread.start()
    until(lambda: router.metric("kvway_kvaware_tokenize_inflight") == 1, 5, "it is asked about")
    router.signal(signal.SIGTERM)
    thread.join()
    assert answers and answers[0].status == 200
    assert router.wait(10) == 0


def test_an_end_without_waiting_leaves_nothing_behind(fleet):
    """A sanitizer would report the job that is under way when everything ends."""
    workers, router = fleet({"drain.timeout": "0s"})
    fail(workers, "delay-ms=3000")
    with Client(router.port) as client:
        client.send_request("POST", CHAT, body=chat(text(62)))
        until(lambda: router.metric("kvway_kvaware_tokenize_inflight") == 1, 5, "it is asked about")
        router.signal(signal.SIGTERM)
        assert router.wait(10) == 0


def test_an_end_does_not_wait_for_costly_prompts(fleet):
    """Of which one thread puts one after the other into the words of /tokenize."""
    workers, router = fleet({"drain.timeout": "0s", "loops": 1, "kvaware.tokens.timeout": "30s"})
    fail(workers, "delay-ms=3000", 40)
    block = '{"type":"text","text":"aaaaaaaaaaaaaaaaaaaaaaaaaa"},' * 18_000
    body = f'{{"model":"tiny","max_tokens":1,"system":[{block[:-1]}],"messages":[{{"role":"user","content":"x"}}]}}'
    with crowd(router.port, 20) as clients:
        for client in clients:
            client.send_request("POST", "/v1/messages", body=body.encode())
        until(lambda: router.metric("kvway_kvaware_tokenize_inflight") == 20, 20, "all are asked about")
        router.signal(signal.SIGTERM)
        assert router.wait(10) == 0


def test_a_retry_neither_asks_nor_waits_again(fleet):
    workers, router = fleet()
    body = chat(text(63))
    first = send(router, CHAT, body)
    told(router, CHAT, body, usage(first)[0])
    (holder,) = [w for w in workers if w.url == first.headers.get("x-kvway-worker")]
    holder.fail("reset-before-head", 2)  # on a kept connection once more on a fresh one
    answer = send(router, CHAT, body)
    assert answer.headers.get("x-kvway-worker") != holder.url
    assert predicted(answer) == usage(answer)[1] == 0
    assert prompts(router, "exact") == 2
    assert router.metric("kvway_kvaware_tokenize_asked_total") == 1
    assert router.metric("kvway_retries_total") == 1


def test_many_at_once_and_clients_that_leave(fleet):
    workers, router = fleet({"kvaware.tokens.timeout": "30ms"}, count=3)
    rng = random.Random(7)

    def user(seed):
        for i in range(12):
            body = chat(text(1000 + seed % 3) + text(seed * 100 + i, 20))
            with Client(router.port, timeout=30) as client:
                client.send_request("POST", CHAT, body=body)
                if rng.random() < 0.3:
                    client.reset()
                else:
                    assert client.read().status == 200

    for worker in workers:
        worker.fail("delay-ms=25")
    threads = [threading.Thread(target=user, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for worker in workers:
        worker.ask("GET", "/sim/fail?spec=delay-ms=0")
    router.wait_idle(20)
    until(lambda: router.metric("kvway_kvaware_tokenize_inflight") == 0, 10, "all jobs are released")
    send(router, CHAT, chat(text(2000)))


# --- what is said -------------------------------------------------------------------------------


def test_explain_says_whose_word_it_goes_by(fleet):
    workers, router = fleet()
    body = chat(text(70))
    tokens, _ = usage(send(router, CHAT, body))
    told(router, CHAT, body, tokens)
    said = explain(router, CHAT, body)
    assert said["tokens"] == "exact" and said["tokens_from"] == "the cache of tokens"
    assert said["exact_tokens"] == said["prompt_tokens"] == tokens
    assert said["reason"] == "kvaware"
    for worker in said["workers"]:
        assert worker["exact"] is True
        assert worker["cache_told_by"]["engine"]["coverage"] == "full"
        assert worker["cache_told_by"]["lmcache"]["coverage"] == "none"
    fresh = explain(router, CHAT, chat(text(71)))
    assert fresh["tokens_from"] == "a worker's /tokenize"
    assert explain(router, COMPLETIONS, {"model": "tiny", "prompt": [1, 2]})["tokens_from"] == "the body"


def test_explain_does_not_wait_for_ever(fleet):
    workers, router = fleet({"kvaware.tokens.timeout": "50ms"})
    fail(workers, "delay-ms=1000")
    said = explain(router, CHAT, chat(text(72)))
    assert said["tokens"] == "timeout"
    assert all(worker["exact"] is False for worker in said["workers"])


def test_lmcaches_users_find_their_lines(kvsim, kvway):
    ports = [unused_port() for _ in range(3)]
    names = ("pull", "reply", "heartbeat")
    config = {f"kvaware.lmcache.{n}": f"127.0.0.1:{p}" for n, p in zip(names, ports)}
    at = f"pull=127.0.0.1:{ports[0]},reply=127.0.0.1:{ports[1]}"
    workers = kvsim(2, "--lmcache-controller", at, "--lmcache-instance", "lm", "--lmcache-chunk-size", "64")
    entries = [{"url": w.url, "lmcache_instance": f"lm_{i}"} for i, w in enumerate(workers)]
    router = kvway(
        [],
        {
            "routing.strategy": "kvaware",
            "http.decision_headers": "always",
            "kvaware.lmcache.chunk_size": 64,
            **config,
            "workers": entries,
        },
    )

    def covered():
        return router.metric("kvway_worker_cache_coverage", reporter="lmcache") == 4

    until(covered, 20, "LMCache's workers have registered")
    body = chat(text(80))
    first = send(router, CHAT, body)
    assert "Matched instance url None" in router.log()
    until(lambda: explain(router, CHAT, body)["predicted_cached_tokens"] >= 128, 10, "it was stored")
    (i,) = [i for i, w in enumerate(workers) if w.url == first.headers.get("x-kvway-worker")]
    assert "Worker registered: lm_0" in router.log() and "Worker registered: lm_1" in router.log()

    def found():
        again = send(router, CHAT, body)
        assert again.headers.get("x-kvway-worker") == first.headers.get("x-kvway-worker")
        assert again.headers.get("x-kvway-reason") == "kvaware"
        return f"Routing request to lm_{i} found by kvaware router" in router.log()

    until(found, 10, "the instance's name is known to the loops")


def grep(router, pattern):
    """The lines of its log, as the documentation of SageMaker HyperPod looks for them."""
    done = subprocess.run(["grep", "-i", pattern, router.log_path], stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def test_their_lines_are_there_without_lmcache(fleet):
    """As `kvway render` configures it: at log level info, by vLLM's events."""
    workers, router = fleet()
    for worker in workers:
        assert [line for line in grep(router, "register") if f"Worker registered: {worker.url}" in line]
    body = chat(text(81))
    first = send(router, CHAT, body)
    (none,) = grep(router, r"kvaware router\|Matched instance\|Lookup")
    assert " info " in none and "Matched instance url None" in none
    tokens, _ = usage(first)
    told(router, CHAT, body, tokens)
    worker = send(router, CHAT, body).headers.get("x-kvway-worker")
    (found,) = grep(router, "kvaware router")
    assert " info " in found and f"Routing request to {worker} found by kvaware router" in found


def test_their_lines_are_few(fleet):
    """A line for each request would cost more than the request."""
    workers, router = fleet()
    began = time.monotonic()
    for i in range(60):
        send(router, CHAT, chat(text(82)))
        send(router, CHAT, chat(text(900 + i)))
    most = time.monotonic() - began + 2
    assert len(grep(router, "kvaware router")) <= most and len(grep(router, "Matched instance")) <= most
