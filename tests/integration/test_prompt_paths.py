"""Every path that carries a prompt is served like chat: the worker that has its beginning, repeats, usage."""

import pytest

from rig.worker import answer as answer_well

SHOWN = {"http.decision_headers": "always"}
TEXT = "All that was said before, in many words, which is long enough to matter. " * 60


def words(turns):
    return [hash_of(word) for turn in turns for word in turn.split()]


def hash_of(word):
    return sum(ord(letter) * 31**at for at, letter in enumerate(word)) % 30000


def talk(turns):
    return [{"role": "user" if at % 2 == 0 else "assistant", "content": turn} for at, turn in enumerate(turns)]


PATHS = [
    ("/inference/v1/generate", lambda t: {"token_ids": words(t), "sampling_params": {"max_tokens": 4}}),
    ("/generate", lambda t: {"text": " ".join(t), "sampling_params": {"max_new_tokens": 4}}),
    ("/generate", lambda t: {"input_ids": words(t), "sampling_params": {"max_new_tokens": 4}}),
    ("/v1/chat/completions/batch", lambda t: {"messages": [talk(t)]}),
    ("/cohere/v2/chat", lambda t: {"messages": talk(t)}),
    ("/api/chat", lambda t: {"messages": talk(t)}),
    ("/api/generate", lambda t: {"prompt": " ".join(t)}),
]


@pytest.mark.parametrize("path, make", PATHS, ids=[f"{number}{path}" for number, (path, _) in enumerate(PATHS)])
def test_a_conversation_stays_where_its_beginning_is(workers, kvway, path, make):
    fleet = workers(4)
    router = kvway(fleet, SHOWN)
    for conversation in range(4):
        turns, before = [f"{conversation} {TEXT}"], None
        for turn in range(4):
            answer = router.ask("POST", path, body={"model": "tiny", **make(turns)})
            assert answer.status == 200
            worker = answer.headers.get("x-kvway-worker")
            if before is not None:
                assert worker == before
                assert int(answer.headers.get("x-kvway-predicted-cached-tokens")) > 0
            before = worker
            turns += ["ok", f"{conversation} {turn} and then? {TEXT[:400]}"]
    # A worker that breaks before the first token is left for another, and the usage of the answer is counted.
    broken = iter([True])
    router.wait_idle()  # an answer is counted after its last byte
    used = router.metric("vllm:input_tokens_total")

    def breaks_once(ex):
        if next(broken, False):
            ex.respond(500, body={"error": {"message": "no"}})
        else:
            answer_well(ex)

    for worker in fleet:
        worker.script = breaks_once
    assert router.ask("POST", path, body={"model": "tiny", **make(["another", TEXT])}).status == 200
    assert router.metric("kvway_retries_total") == 1
    router.wait_idle()
    assert router.metric("vllm:input_tokens_total") > used
