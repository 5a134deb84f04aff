"""A first token is what an engine has computed: what its API server sends alone starts and stops no clock."""

import threading
import time

import pytest

from rig.client import CHAT, MESSAGES, chat_body
from rig.sim import Sim
from rig.wire import Closed

RESPONSES = "/v1/responses"
KEEP_ALIVE = b": keep-alive\n\n"
ERROR = {"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}}
COUNTERS = (
    'vllm:iteration_tokens_total_count{engine="0"} %d\n'
    'vllm:generation_tokens_total{engine="0"} 7\n'
    'vllm:num_requests_running{engine="0"} %d\n'
)
TURNS = {"routing.strategy": "roundrobin"}
BODIES = {
    CHAT: chat_body(stream=True),
    MESSAGES: chat_body(stream=True, max_tokens=3),
    RESPONSES: {"model": "tiny", "input": "hello", "stream": True},
}


def named(name, data="{}"):
    return f"event: {name}\ndata: {data}\n\n".encode()


OPENINGS = {
    CHAT: [KEEP_ALIVE, b":\r\n\r\n"],
    MESSAGES: [named("message_start"), named("ping"), KEEP_ALIVE],
    RESPONSES: [named("response.created"), KEEP_ALIVE, named("response.in_progress")],
}
TOKENS = {
    CHAT: b'data: {"choices":[{"index":0,"delta":{"content":"good"}}]}\n\n',
    MESSAGES: named("content_block_delta", '{"delta":{"text":"good"}}'),
    RESPONSES: named("response.output_text.delta", '{"delta":"good"}'),
}
PATHS = sorted(BODIES)


def plain(body):
    """Without comments, which may come while the rest is held."""
    return body.replace(KEEP_ALIVE, b"")


def serves(path, pause=0.0):
    def script(ex):
        ex.read_body()
        ex.start_stream()
        for piece in OPENINGS[path]:
            ex.chunk(piece)
            time.sleep(pause)
        ex.chunk(TOKENS[path])
        ex.end_stream()

    return script


def opens_and(path, then):
    def script(ex):
        ex.read_body()
        ex.start_stream()
        for piece in OPENINGS[path]:
            ex.chunk(piece)
            time.sleep(0.02)
        then(ex)

    return script


def error(ex):
    ex.event(ERROR)
    ex.event("[DONE]")
    ex.end_stream()


ENDS = {
    "error": error,
    "error_event": lambda ex: (ex.chunk(named("error")), ex.end_stream()),
    "end": lambda ex: ex.end_stream(),
    "reset": lambda ex: ex.reset(),
    "close": lambda ex: ex.close(),
}


@pytest.mark.parametrize("path", PATHS)
def test_an_engine_that_fails_behind_its_opening_is_left(workers, kvway, path):
    fleet = workers(2, script=serves(path))
    router = kvway(fleet, dict(TURNS, **{"ejection.max_share": 0}))
    for end in sorted(ENDS):
        fleet[0].script = opens_and(path, ENDS[end])
        for _ in range(2):
            got = router.ask("POST", path, body=BODIES[path])
            assert got.status == 200, end
            assert plain(got.body) == plain(b"".join([*OPENINGS[path], TOKENS[path]])), end
    assert router.metric("kvway_retries_total") == len(fleet[0].requests) >= len(ENDS)


def test_an_opening_that_is_large_and_comes_in_pieces_is_held_and_passes_unchanged(workers, kvway):
    """response.created and response.in_progress repeat the request's instructions and tools."""
    opening = named("response.created", "x" * 90_000) + named("response.in_progress", "y" * 90_000)
    breaks = True

    def large(ex):
        ex.read_body()
        ex.start_stream()
        for at in range(0, len(opening), 7001):
            ex.chunk(opening[at : at + 7001])
        if breaks:
            ex.reset()
            return
        time.sleep(0.05)
        ex.chunk(TOKENS[RESPONSES])
        ex.end_stream()

    fleet = workers(2)
    fleet[0].script = large
    fleet[1].script = serves(RESPONSES)
    router = kvway(fleet, dict(TURNS, **{"ejection.max_share": 0}))
    for _ in range(2):
        assert b"good" in router.ask("POST", RESPONSES, body=BODIES[RESPONSES]).body
    assert router.metric("kvway_retries_total") == len(fleet[0].requests) > 0
    breaks = False
    fleet[1].script = large
    got = router.ask("POST", RESPONSES, body=BODIES[RESPONSES])
    assert got.body == opening + TOKENS[RESPONSES]


@pytest.mark.parametrize("path", PATHS)
def test_openings_are_no_first_token_and_no_gap(workers, kvway, path):
    (worker,) = workers(1, script=serves(path, pause=0.2))
    router = kvway([worker])
    assert router.ask("POST", path, body=BODIES[path]).status == 200
    router.wait_idle()
    route = path.rsplit("/", 1)[1].replace("completions", "chat")
    least = 0.2 * len(OPENINGS[path])
    assert router.metric("kvway_time_to_first_token_seconds_sum", route=route) >= least
    assert router.metric("kvway_inter_token_seconds_count") == 0


def test_comments_between_tokens_are_no_tokens(workers, kvway):
    def script(ex):
        ex.read_body()
        ex.start_stream()
        ex.chunk(TOKENS[CHAT])
        for _ in range(5):
            ex.chunk(KEEP_ALIVE)
            time.sleep(0.05)
        ex.chunk(TOKENS[CHAT])
        ex.chunk(b'data: {"choices":[{"index":0,"delta":{"content"')
        time.sleep(0.05)
        ex.chunk(b':"x"}}]}\n\n')
        ex.end_stream()

    (worker,) = workers(1, script=script)
    router = kvway([worker])
    got = router.ask("POST", CHAT, body=BODIES[CHAT])
    router.wait_idle()
    assert got.body.count(KEEP_ALIVE) == 5 and got.body.count(b"good") == 2
    assert router.metric("kvway_inter_token_seconds_count") <= 3
    assert router.metric("kvway_inter_token_seconds_sum") >= 0.25


def comments_until(release, before=()):
    """What vLLM's API server does with --sse-keep-alive-interval when its engine has stopped."""

    def script(ex):
        ex.read_body()
        ex.start_stream()
        for piece in before:
            ex.chunk(piece)
        try:
            while not release.wait(0.1):
                ex.chunk(KEEP_ALIVE)
        except Closed:
            pass
        ex.close()

    return script


@pytest.fixture
def release():
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("path", PATHS)
def test_a_stopped_engine_is_found_behind_comments(workers, kvway, release, path):
    fleet = workers(2, script=serves(path))
    for worker in fleet:
        worker.metrics = COUNTERS % (5, 1)
    fleet[0].script = comments_until(release, OPENINGS[path])
    router = kvway(fleet, dict(TURNS, **{"upstream.stall": "1500ms"}))
    for _ in range(4):
        got = router.ask("POST", path, body=BODIES[path], timeout=20)
        assert got.status == 200 and b"good" in got.body
    assert router.metric("kvway_failovers_total") == 1
    assert router.metric("kvway_worker_ejections_total", worker=fleet[0].url) == 1


def test_a_stream_of_a_stopped_engine_is_cut_behind_comments(workers, kvway, release):
    fleet = workers(2, script=serves(CHAT))
    for worker in fleet:
        worker.metrics = COUNTERS % (5, 1)
    fleet[0].script = comments_until(release, [TOKENS[CHAT]])
    config = {"upstream.stall": "1s", "health.interval": "300ms", "health.timeout": "100ms"}
    router = kvway(fleet, dict(TURNS, **config))
    with pytest.raises(Closed):
        for _ in range(2):
            router.ask("POST", CHAT, body=BODIES[CHAT], timeout=20)
    assert router.metric("kvway_failovers_total") == 1


def test_the_time_for_a_first_token_runs_on_behind_comments(workers, kvway, release):
    (worker,) = workers(1, script=comments_until(release, OPENINGS[RESPONSES]))
    router = kvway([worker], {"timeouts.first_token": "500ms"})
    got = router.ask("POST", RESPONSES, body=BODIES[RESPONSES])
    assert b"did not answer in time" in got.body
    assert router.metric("kvway_timeouts_total", kind="first_token") == 1
    router.wait_idle()


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
