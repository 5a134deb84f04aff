"""Clients leave while their requests are loaded, also ones that were preempted before: the engine goes on, and answers as
before."""

import http.client
import json
import os
import subprocess

import pytest
from connected import LIBRARY, PACKAGE, ConnectedEngine, answers, of_size, prompts, texts
from rig.wait import until
from server import HERE, MODEL, VENV

ASKED = [prompt for prompt in prompts(60, 3) if len(prompt) > 700][:8]
WAITING, LOADS = "vllm:num_requests_waiting", "kvtier:loads_total"


class Exact(ConnectedEngine):
    """float32, in which no answer hangs on how the computation is split."""

    name = "aborts"

    def environment(self):
        return {**super().environment(), "DTYPE": "float32"}


@pytest.fixture
def engine(directory):
    one = Exact(directory, 0, of_size(64), blocks=512, module="slow")
    yield one.ready()
    one.kill()


def begun(engine, prompt):
    """A connection with a long answer under way."""
    link = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=60)
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 2000, "temperature": 0, "ignore_eos": True, "stream": True}
    link.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    answer = link.getresponse()
    assert answer.status == 200 and answer.readline().startswith(b"data: ")
    return link, answer


def test_clients_leave_while_preempted_requests_are_loaded_again(engine):
    right = texts(answers(engine, ASKED))
    links = [begun(engine, prompt) for prompt in ASKED]
    loads = engine.counts()[LOADS]
    engine.post("/reset_prefix_cache?reset_running_requests=true")
    until(lambda: engine.counts()[WAITING] >= len(ASKED) // 2, 30, "requests that wait for their loads")
    for link, answer in links:
        answer.close()
        link.close()
    until(lambda: engine.post("/reset_prefix_cache")["success"], 60, "no block in use")
    loads = engine.count_after_a_step(LOADS) - loads
    print(f"\n{loads:g} loads for clients that left")
    assert loads >= len(ASKED) // 2 and texts(answers(engine, ASKED)) == right


def test_histories_of_its_scheduler():
    told = subprocess.run(
        [f"{VENV}/bin/python", HERE / "histories.py", MODEL, "100"], capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": f"{PACKAGE}:{HERE.parent / 'integration'}", "KVTIER_LIBRARY": str(LIBRARY)},
    )  # fmt: skip
    assert told.returncode == 0, (told.stdout + told.stderr)[-4000:]
    print("\n" + told.stdout.splitlines()[-1])
