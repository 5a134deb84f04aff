"""A worker process that dies by SIGKILL under load."""

import signal
import threading

import pytest
from rig.client import CHAT, Client, chat_body
from rig.sim import Sim
from rig.wait import until
from rig.wire import Closed


@pytest.fixture
def processes(tmp_path):
    """Three simulated workers, a process each. Streams take some tenths of a second."""
    made = [
        Sim(tmp_path, 1, "--speed", 4, profile="reference", name=f"kvsim{n}") for n in range(3)
    ]
    yield made
    for sim in made:
        sim.kill()


def test_sigkill_under_load_costs_only_streams_that_had_begun(processes, kvway):
    """The head of an answer leaves with its first token: a client that has seen none must get a whole one."""
    router = kvway([sim.workers[0] for sim in processes], {"routing.strategy": "roundrobin"})
    good, begun, wrong = [], [], []
    stop = threading.Event()

    def user(number):
        turn = 0
        while not stop.is_set():
            turn += 1
            body = chat_body(f"user {number} turn {turn}", stream=True, max_tokens=40)
            with Client(router.port, timeout=20) as client:
                try:
                    client.send_request("POST", CHAT, body=body)
                    answer = client.read_head()
                    assert answer.status == 200, answer
                except (Closed, OSError, AssertionError) as error:
                    wrong.append(repr(error))
                    continue
                try:
                    client.read_body(answer)
                    good.append(answer.events()[-1] == "[DONE]")
                except (Closed, OSError):
                    begun.append(number)

    threads = [threading.Thread(target=user, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(good) > 60, 20)
        processes[1].signal(signal.SIGKILL)
        processes[1].wait()
        count = len(good)
        until(lambda: len(good) > count + 100, 20)
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert not wrong, f"{len(wrong)} lost before their first token: {wrong[:3]}"
    assert all(good)
    assert 0 < len(begun) <= 24, "the kill must have met running streams, each user's one at most"
    router.wait_idle()
