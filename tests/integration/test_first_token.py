"""The rate of prefill that kvway learns counts from tokens, not from what an API server sends alone; requests/first_token has
the other cases."""

from rig.client import CHAT, chat_body
from rig.sim import Sim

RESPONSES = "/v1/responses"
KEEP_ALIVE = b": keep-alive\n\n"


def test_prefill_is_learned_of_responses_from_their_tokens(tmp_path, kvway):
    """Their opening events come at once, and made a worker's prefill twenty times too fast."""
    sim = Sim(tmp_path, 1, "--prefill-rate", 4000, profile="llama-8b-h100")
    try:
        router = kvway(sim.workers)
        for i in range(12):
            text = " ".join(f"{i} {n} word" for n in range(150))
            body = {"model": "tiny", "input": text, "stream": True, "max_output_tokens": 2}
            assert router.ask("POST", RESPONSES, body=body).status == 200
        router.wait_idle()
        assert 1000 < router.metric("kvway_worker_prefill_tokens_per_second") < 6000
    finally:
        sim.kill()


def test_chat_with_comments_teaches_the_prefill_of_its_tokens(tmp_path, kvway):
    """kvsim's comments, as vLLM's --sse-keep-alive-interval."""
    sim = Sim(tmp_path, 1, "--prefill-rate", 4000, "--sse-keep-alive-interval", "0.02", profile="llama-8b-h100")
    try:
        router = kvway(sim.workers)
        for i in range(12):
            text = " ".join(f"{i} {n} word" for n in range(150))
            got = router.ask("POST", CHAT, body=chat_body(text, stream=True, max_tokens=2))
            assert KEEP_ALIVE in got.body
        router.wait_idle()
        assert 1000 < router.metric("kvway_worker_prefill_tokens_per_second") < 6000
    finally:
        sim.kill()
