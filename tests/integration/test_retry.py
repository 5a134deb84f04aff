"""Workers that fail under load. One request at a time is tests/requests/retry."""

import threading
import time

from rig.client import CHAT, Client, chat_body
from rig.wait import until
from rig.wire import Closed


def reset_unanswered(ex):
    ex.reset()


def test_passive_failures_take_a_worker_out(workers, kvway):
    fleet = workers(2)
    fleet[0].script = reset_unanswered
    router = kvway(
        fleet,
        {
            "routing.strategy": "roundrobin",
            "health.passive_failures": 3,
            "health.interval": "1h",
        },
    )
    for i in range(30):
        assert router.ask("POST", CHAT, body=chat_body(str(i))).status == 200
    assert 3 <= len(fleet[0].requests) <= 6


def test_killed_worker_costs_only_what_it_had_begun(workers, kvway):
    """During load one of three workers dies as by SIGKILL: only streams that had their first
    token from it may fail, and the rest never notices."""
    begun = {}  # request id -> worker that sent its first token

    def script(ex):
        ex.read_body()
        time.sleep(0.03)
        ex.start_stream()
        begun[ex.headers.get("x-request-id")] = ex.worker.name
        for i in range(8):
            ex.event({"i": i, "from": ex.worker.name})
            time.sleep(0.01)
        ex.event("[DONE]")
        ex.end_stream()

    fleet = workers(3, script=script)
    router = kvway(fleet, {"routing.strategy": "roundrobin"})
    failed, good = [], []
    stop = threading.Event()

    def user(number):
        turn = 0
        while not stop.is_set():
            turn += 1
            name = f"u{number}-{turn}"
            try:
                with Client(router.port) as client:
                    got = client.ask(
                        "POST", CHAT, [("X-Request-Id", name)], chat_body(name, stream=True)
                    )
                    assert got.status == 200 and got.events()[-1] == "[DONE]", got
                good.append(name)
            except (Closed, AssertionError) as error:
                failed.append((name, str(error)))

    threads = [threading.Thread(target=user, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    until(lambda: len(good) > 60)
    fleet[1].stop()
    count = len(good)
    until(lambda: len(good) > count + 100)
    stop.set()
    for thread in threads:
        thread.join(10)
    wrong = [(n, why) for n, why in failed if begun.get(n) != "w1"]
    assert not wrong, f"lost without having had a token from the dead worker: {wrong[:3]}"
    assert len(failed) <= 24
    router.wait_idle()
