"""Copies of requests for a group that is only watched: whatever its workers do, no client notices."""

import json
import threading
import time

import pytest
from rig.client import CHAT, ask, chat_body
from rig.wait import until
from rig.worker import answer
from test_groups import start
from test_reload import File


def entries(share=1, **more):
    return [
        {"model": "tiny", "group": "stable", "workers": ["stable"]},
        {"model": "tiny", "group": "next", "weight": 0, "shadow": share, "workers": ["canary"], **more},
    ]


def pair(workers, kvway, script, config=None, share=1, models=("tiny",), **more):
    stable, watched = workers(1), workers(1, models=models, script=script)
    return stable[0], watched[0], start(kvway, stable, watched, config, entries=entries(share, **more))


def send(router, number=0, **more):
    begun = time.monotonic()
    headers = [("x-request-id", f"r{number}")]
    got = router.ask("POST", CHAT, headers, json.dumps(chat_body(f"hi {number}", **more)).encode())
    return got, time.monotonic() - begun


def became(router, result):
    return router.metric("kvway_group_shadow_total", model="tiny", group="next", result=result)


def copied(ex):
    """As servers do that are asked to close the connection."""
    answer(ex)
    ex.close()


@pytest.mark.parametrize("stream", [False, True])
def test_copies_are_made_and_discarded(workers, kvway, stream):
    stable, watched, router = pair(workers, kvway, copied, models=("tiny-next",), to="tiny-next")
    for number in range(5):
        got, _ = send(router, number, stream=stream)
        assert got.status == 200
    until(lambda: became(router, "ok") == 5)
    assert len(stable.requests) == len(watched.requests) == 5
    for one, copy in zip(stable.requests, sorted(watched.requests, key=lambda r: r.body)):
        assert copy.body == one.body.replace(b'"tiny"', b'"tiny-next"')
    router.wait_idle()
    assert router.metric("kvway_shadow_requests") == 0
    # They are no requests: neither the group nor the worker has any.
    assert router.metric("kvway_group_requests_total", group="next") == 0
    assert router.metric("kvway_requests_total", worker=watched.url) == 0
    assert router.metric("kvway_group_shadow_answer_seconds_count", group="next") == 5


def test_so_many_as_their_share(workers, kvway):
    stable, watched, router = pair(workers, kvway, copied, {"groups.shadow_in_flight": 1000}, share=0.2)
    for number in range(300):
        assert send(router, number)[0].status == 200
    until(lambda: router.metric("kvway_shadow_requests") == 0)
    assert 30 <= len(watched.requests) <= 90
    assert became(router, "ok") == len(watched.requests)


def test_a_worker_that_hangs_is_not_noticed(workers, kvway):
    hung = threading.Event()
    stable, watched, router = pair(
        workers,
        kvway,
        lambda ex: hung.wait(20),
        {"groups.shadow_in_flight": 3, "groups.shadow_timeout": "400ms"},
    )
    for number in range(12):
        got, seconds = send(router, number)
        assert got.status == 200 and seconds < 5
    assert became(router, "dropped") >= 1
    assert len(watched.requests) <= 3 + became(router, "timeout")
    until(lambda: became(router, "timeout") >= 3)
    until(lambda: router.metric("kvway_shadow_requests") == 0)
    assert became(router, "timeout") + became(router, "dropped") == 12
    router.wait_idle()
    hung.set()


@pytest.mark.parametrize("how", ["reset", "refuse", "error", "endless"])
def test_a_worker_that_breaks_is_not_noticed(workers, kvway, how):
    def endless(ex):
        ex.start_stream()
        for _ in range(200):
            ex.event({"x": "y" * 1000})

    scripts = {
        "reset": lambda ex: ex.reset(),
        "error": lambda ex: (ex.respond(500, body={}), ex.close()),
        "endless": endless,
        "refuse": copied,
    }
    stable, watched, router = pair(workers, kvway, scripts[how], {"groups.shadow_answer": "8KiB"})
    if how == "refuse":
        watched.stop()
    for number in range(6):
        assert send(router, number)[0].status == 200
    until(lambda: became(router, "error") + became(router, "limit") + became(router, "dropped") == 6)
    assert (became(router, "limit") == 6) == (how == "endless")
    assert len(stable.requests) == 6
    router.wait_idle()
    # It is judged by what clients saw, which is nothing.
    assert router.metric("kvway_worker_bad_answers_total", worker=watched.url) == 0
    watched.failures.clear()


def test_an_answer_that_is_cut_off_is_an_error(workers, kvway):
    def cut(ex):
        ex.start_stream()
        ex.event({"x": "y"})
        ex.close()

    stable, watched, router = pair(workers, kvway, cut)
    for number in range(3):
        assert send(router, number)[0].status == 200
    until(lambda: router.metric("kvway_shadow_requests") == 0 and len(watched.requests) == 3)
    assert became(router, "error") == 3


def test_a_worker_that_keeps_the_connection_open_is_not_waited_for(workers, kvway):
    stable, watched, router = pair(workers, kvway, answer, {"groups.shadow_timeout": "1h"})
    for number in range(4):
        assert send(router, number, stream=number % 2 == 0)[0].status == 200
    until(lambda: became(router, "ok") == 4)
    until(lambda: router.metric("kvway_shadow_requests") == 0)


def test_an_interim_answer_is_not_the_answer(workers, kvway):
    def hints(ex):
        ex.send(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n")
        time.sleep(0.02)
        ex.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        copied(ex)

    stable, watched, router = pair(workers, kvway, hints)
    for number in range(2):
        assert send(router, number)[0].status == 200
    until(lambda: router.metric("kvway_shadow_requests") == 0 and len(watched.requests) == 2)
    assert became(router, "ok") == 2


def test_slow_copies_under_load(workers, kvway):
    def slow(ex):
        time.sleep(0.05)
        copied(ex)

    stable, watched, router = pair(workers, kvway, slow, {"groups.shadow_in_flight": 4})
    failed = []

    def client(base):
        for number in range(25):
            got, _ = send(router, base * 100 + number, stream=number % 2 == 0)
            if got.status != 200:
                failed.append(got)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(stable.requests) == 200
    until(lambda: router.metric("kvway_shadow_requests") == 0)
    assert became(router, "ok") + became(router, "dropped") == 200
    assert became(router, "ok") == len(watched.requests) > 0
    router.wait_idle()


def test_bodies_that_are_too_large_are_not_copied(workers, kvway):
    stable, watched, router = pair(workers, kvway, copied, {"groups.shadow_body": "1KiB"})
    assert router.ask("POST", CHAT, body=json.dumps(chat_body("a" * 2000)).encode()).status == 200
    assert became(router, "dropped") == 1 and not watched.requests


def test_copies_hold_so_much_and_no_more(workers, kvway):
    hung = threading.Event()
    stable, watched, router = pair(
        workers, kvway, lambda ex: hung.wait(20), {"groups.shadow_memory": "64KiB", "loops": 1, "groups.shadow_timeout": "3s"}
    )
    body = json.dumps(chat_body("a" * 30_000)).encode()
    for _ in range(4):
        assert router.ask("POST", CHAT, body=body).status == 200
    until(lambda: router.metric("kvway_shadow_requests") == 2)
    assert became(router, "dropped") == 2
    assert 60_000 < router.metric("kvway_shadow_bytes") <= 64 << 10
    until(lambda: became(router, "timeout") == 2)
    assert router.metric("kvway_shadow_bytes") == 0
    hung.set()


def test_copies_of_what_names_its_group_go_to_every_worker(workers, kvway):
    stable, watched = workers(1), workers(2, script=copied)
    router = start(kvway, stable, watched, {"groups.header": "x-kvway-group"}, entries=entries())
    for number in range(40):
        headers = [("x-request-id", f"r{number}"), ("x-kvway-group", "stable")]
        assert router.ask("POST", CHAT, headers, json.dumps(chat_body(f"hi {number}")).encode()).status == 200
    until(lambda: became(router, "ok") + became(router, "dropped") == 40)
    assert all(w.requests for w in watched), [len(w.requests) for w in watched]


@pytest.mark.parametrize("end", ["stop", "reload", "remove"])
def test_copies_end_with_kvway_and_their_worker(workers, kvway, end):
    hung = threading.Event()
    stable, watched, router = pair(workers, kvway, lambda ex: hung.wait(20), {"groups.shadow_timeout": "1h"})
    for number in range(3):
        assert send(router, number)[0].status == 200
    until(lambda: router.metric("kvway_shadow_requests") == 3)
    if end == "reload":
        File(router).take({"model_groups": entries(0)})
        assert send(router, 7)[0].status == 200
        assert router.metric("kvway_shadow_requests") == 3
    if end == "remove":
        name = watched.url.removeprefix("http://")
        assert ask(router.admin_port, "DELETE", f"/workers/{name}?now=true").status == 200
        until(lambda: became(router, "cancelled") == 3)
    router.stop()  # with 0, within its time
    hung.set()
