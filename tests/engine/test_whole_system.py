"""All of it, all real: a stock client, kvway by `kvaware`, two engines with kvtier, what they share.

Talks of several turns by the OpenAI SDK, four at a time, half of them streamed. An engine without
kvtier says first what every answer is: each turn contains the answers before it, so one wrong answer
would show in all that follow. In the middle one engine is killed and started again, then the other killed.
"""

import collections
import random
import threading

import openai
import pytest
from connected import BLOCK, ConnectedEngine, at_once, of_size, through
from mixed import prose
from rig.kvtierd import Kvtierd
from rig.router import Router
from rig.wait import until

TALKS, TURNS, ANSWER = 16, 9, 16
WISH = {"x-kvway-explain": "1"}
CONFIG = {
    "routing.strategy": "kvaware",
    "http.decision_headers": "on_request",
    "routing.slow_start": "0s",
    "kvaware.tokens.timeout": "5s",  # of an engine that shares two cores with all the others
}
HITS = "vllm:prompt_tokens_cached_by_source_total"
SOURCES = ("device", "host", "disk", "external_unspecified")

Turn = collections.namedtuple("Turn", "talk turn stream worker predicted cached prompt text")
Failure = collections.namedtuple("Failure", "talk turn stream worker error")


class Talks:
    """What users say; what was said so far; every turn that was answered, every one that failed."""

    def __init__(self, url):
        rng = random.Random(11)
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)
        self.system = {"role": "system", "content": prose(rng, 1200)}
        self.says = [[prose(rng, rng.choice((60, 200, 500))) for _ in range(TURNS)] for _ in range(TALKS)]
        self.answers = [[] for _ in range(TALKS)]
        self.turns, self.failures = [], []
        self.lock = threading.Lock()

    def messages(self, talk):
        found = [self.system]
        for turn, answer in enumerate(self.answers[talk]):
            found.append({"role": "user", "content": self.says[talk][turn]})
            found.append({"role": "assistant", "content": answer})
        return [*found, {"role": "user", "content": self.says[talk][len(self.answers[talk])]}]

    def step(self, talk):
        """One turn. A user whose answer broke asks again, once."""
        turn = len(self.answers[talk])
        stream = (talk + turn) % 2 == 0
        try:
            told = self._ask(talk, turn, stream)
        except _Broken as broken:
            with self.lock:
                self.failures.append(broken.failure)
            told = self._ask(talk, turn, False)
        self.answers[talk].append(told.text)
        with self.lock:
            self.turns.append(told)

    def _ask(self, talk, turn, stream):
        wish = {"model": "tiny", "messages": self.messages(talk), "max_tokens": ANSWER, "temperature": 0,
                "extra_headers": WISH, "extra_body": {"ignore_eos": True}}  # fmt: skip
        if stream:
            wish |= {"stream": True, "stream_options": {"include_usage": True}}
        worker = None
        try:
            raw = self.client.chat.completions.with_raw_response.create(**wish)
            worker = raw.headers.get("x-kvway-worker")
            text, usage = _streamed(raw.parse()) if stream else _whole(raw.parse())
        except Exception as error:  # whatever a client sees of it
            raise _Broken(Failure(talk, turn, stream, worker, repr(error))) from error
        details = usage.prompt_tokens_details
        predicted = int(raw.headers.get("x-kvway-predicted-cached-tokens") or 0)
        cached = (details and details.cached_tokens) or 0
        return Turn(talk, turn, stream, worker, predicted, cached, usage.prompt_tokens, text)

    def run(self, turns, meanwhile=None):
        """So many turns of all talks. meanwhile: called once the first of them was answered."""
        order = [talk for _ in range(turns) for talk in range(TALKS)]
        locks = [threading.Lock() for _ in range(TALKS)]
        begun = threading.Event()

        def step(talk):
            with locks[talk]:
                self.step(talk)
            begun.set()

        helper = threading.Thread(target=lambda: (begun.wait(60), meanwhile()))
        if meanwhile:
            helper.start()
        at_once(step, order, 4)
        if meanwhile:
            helper.join()


class _Broken(Exception):
    def __init__(self, failure):
        super().__init__(failure.error)
        self.failure = failure


def _whole(answer):
    return answer.choices[0].message.content, answer.usage


def _streamed(pieces):
    text, usage, finished = [], None, False
    for piece in pieces:
        usage = piece.usage or usage
        for choice in piece.choices:
            text.append(choice.delta.content or "")
            finished = finished or choice.finish_reason is not None
    if not finished or usage is None:
        raise EOFError("a stream that ended early")
    return "".join(text), usage


@pytest.fixture(scope="module")
def said(directory):
    """What each talk's answers are."""
    engine = ConnectedEngine(directory, 98, None).ready()
    try:
        talks = Talks(engine.url)
        talks.run(TURNS)
        assert not talks.failures
        return talks.answers
    finally:
        engine.kill()


@pytest.fixture(params=["redis", "kvtierd over redis"])
def l2(request, tmp_path, redis):
    """The tier that both engines share."""
    if request.param == "redis":
        yield {"url": redis.url}
        return
    daemon = Kvtierd(tmp_path, {"segment.size": "64MiB", "cache.l2.url": redis.url})
    daemon.wait_up()
    yield {**through(daemon), "lease_time": "2s"}
    daemon.kill()
    daemon.remove()


def by_tier(engines):
    return {e.url: {s: int(e.counts()[f"{HITS}:{s}"]) for s in SOURCES} for e in engines}


def report(name, turns, engines):
    tokens = sum(t.prompt for t in turns)
    print(f"\n  {name}: {len(turns)} turns, {share(turns):.0%} of {tokens} prompt tokens cached")
    for url, found in by_tier(engines).items():
        here = sum(1 for t in turns if t.worker == url)
        print(f"    {url}: {here} turns; cached so far: " + ", ".join(f"{s} {n}" for s, n in found.items()))


def stayed(turns):
    """Share of turns that came to the engine that had the turn before."""
    at, all_turns, same = {}, 0, 0
    for turn in sorted(turns, key=lambda t: (t.talk, t.turn)):
        if turn.talk in at:
            all_turns, same = all_turns + 1, same + (at[turn.talk] == turn.worker)
        at[turn.talk] = turn.worker
    return same / all_turns


def share(turns):
    """Of their prompts' tokens that were cached."""
    return sum(t.cached for t in turns) / sum(t.prompt for t in turns)


def external(engine):
    """Tokens that it had from the tier that both share."""
    return engine.counts()[f"{HITS}:external_unspecified"]


def kept_promises(turns):
    """Share of turns that found at least what kvway said they would."""
    return sum(t.cached >= t.predicted - BLOCK for t in turns) / len(turns)


class Fleet:
    """Two engines, kvway in front of them, and talks in parts."""

    def __init__(self, engines, router):
        self.engines, self.router, self.talks = engines, router, Talks(router.url)

    def part(self, name, turns, dying=None):
        """These turns of all talks. dying: an engine that is killed while it answers one of them."""
        before, lost = len(self.talks.turns), len(self.talks.failures)
        self.talks.run(turns, meanwhile=dying and (lambda: kill_at_work(dying)))
        found, failures = self.talks.turns[before:], self.talks.failures[lost:]
        report(name, found, [e for e in self.engines if e.alive()])
        if dying:
            print(f"    broken streams of the dead engine: {len(failures)}")
        # Only what streamed from the dead engine may break.
        assert not [f for f in failures if dying is None or not f.stream or f.worker != dying.url], failures
        return found

    def bring_back(self, engine):
        engine.start()
        engine.ready()
        usable = lambda: self.router.metric("kvway_worker_usable", worker=engine.url) == 1  # noqa: E731
        until(usable, 20, "known to be back")


def kill_at_work(engine):
    try:
        until(lambda: engine.running() > 0, 20, "a request in the engine that dies")
    finally:
        engine.kill()


def test_talks_and_deaths(engine_of, said, l2, tmp_path):
    """One engine dies and comes back empty; then the other dies, and the first has to go on with all talks
    from what both share."""
    first, second = engines = engine_of(*[of_size(64, l2=l2)] * 2, publishes=True)
    router = Router(tmp_path, engines, CONFIG).wait_up(engines)
    try:
        fleet = Fleet(engines, router)
        calm = fleet.part("before", 3)
        assert stayed(calm) >= 0.7 and kept_promises(calm) >= 0.97
        assert {t.worker for t in calm} == {e.url for e in engines}

        fleet.part("the first dies", 2, dying=first)
        assert external(second) > 0  # the other has the dead one's talks from what both share

        fleet.bring_back(first)
        back = fleet.part("it is back, empty", 2)
        assert share(back) >= share(calm)
        fleet.part("the second dies", 1, dying=second)
        alone = fleet.part("the first alone", 1)
        assert {t.worker for t in alone} == {first.url}
        assert share(alone) >= share(calm) and external(first) > 0
        assert kept_promises(back + alone) >= 0.97
        assert fleet.talks.answers == said
    finally:
        router.stop()
