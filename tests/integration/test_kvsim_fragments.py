"""kvsim's workers that reuse cached text which is not a prefix: what is cut, what is counted, what is refused."""

import subprocess

import pytest

from rig.client import CHAT, COMPLETIONS, ask
from rig.router import parse_metrics
from rig.sim import PROGRAM, Sim

SEPARATOR = " # # "
DOCUMENTS = [f"document {n}: " + " ".join(f"w{n}x{i:04}" for i in range(150)) for n in range(4)]


@pytest.fixture
def worker(tmp_path):
    sim = Sim(tmp_path, 1, "--fragments", "0.15", "--fragments-min", "64")
    yield sim.workers[0]
    sim.signal(15)
    assert sim.wait() == 0, sim.log()
    assert "Sanitizer" not in sim.log() and "runtime error" not in sim.log(), sim.log()


def cached(worker, path, body):
    answer = ask(worker.port, "POST", path, body={"model": "tiny", "max_tokens": 3, **body})
    assert answer.status == 200
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def prompt(*which, **more):
    return {"prompt": SEPARATOR.join([DOCUMENTS[i] for i in which] + ["What is it about?"]), **more}


def messages(*which, **more):
    texts = [DOCUMENTS[i] for i in which] + ["What is it about?"]
    return {"messages": [{"role": "user", "content": text} for text in texts], **more}


def tokens(worker, text):
    return ask(worker.port, "POST", "/tokenize", body={"prompt": text}).json()["count"]


def test_documents_are_found_at_other_places_and_in_messages_of_their_own(worker):
    length = sum(tokens(worker, DOCUMENTS[i]) for i in (0, 1))
    assert cached(worker, COMPLETIONS, prompt(0, 1)) == 0
    assert cached(worker, COMPLETIONS, prompt(1, 0)) == length
    assert cached(worker, COMPLETIONS, prompt(2, 0, 1)) == length
    assert cached(worker, CHAT, messages(1, 0)) == length
    assert tokens(worker, "abcd" + SEPARATOR + "efgh") == 3
    page = parse_metrics(ask(worker.port, "GET", "/metrics").body.decode())
    value = {name: v for (name, _), v in page.items()}
    assert value["kvtier:fragments_enabled"] == 1
    assert value["kvsim:fragment_tokens_total"] == 3 * length
    assert value["vllm:external_prefix_cache_hits_total"] == 3 * length
    assert worker.stats()["fragments"]["found"] == 6


def test_a_request_can_refuse_fragments_and_tenants_share_none(worker):
    cached(worker, COMPLETIONS, prompt(0, 1))
    refused = {"kv_transfer_params": {"kvtier.fragments": False}}
    assert cached(worker, COMPLETIONS, prompt(1, 0, **refused)) == 0
    assert cached(worker, COMPLETIONS, prompt(0, 1, cache_salt="other")) == 0
    assert cached(worker, COMPLETIONS, prompt(1, 0, cache_salt="other")) > 0
    ask(worker.port, "GET", "/sim/restart")
    assert cached(worker, COMPLETIONS, prompt(1, 0)) == 0


@pytest.mark.parametrize("words", [["--fragments", "1.5"], ["--fragments", "x"], ["--fragments-min", "0"],
                                   ["--fragments-rotate", "fast"], ["--fragments-layers", "-1"]])
def test_wrong_options_are_refused_by_name(words):
    run = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=30)
    assert run.returncode != 0 and f"kvsim: {words[0]}: found" in run.stderr
