"""A real engine of two ranks: each has a cache of its own, and both must have what is loaded."""

import pytest
from connected import BLOCK, ConnectedEngine, answers, loadable, prompts, texts
from rig.wait import until
from test_kvtier_events import heard, stored

ASKED = [prompt for prompt in prompts(60, 5) if len(prompt) > 2 * BLOCK][:24]


class TwoRanks(ConnectedEngine):
    name = "two"

    def environment(self):
        return {**super().environment(), "CORE": "nobind"}

    def options(self):
        return [*super().options(), "--tensor-parallel-size", "2"]


@pytest.fixture
def engine(tmp_path):
    cache = {"l1": {"capacity": "128MiB"}, "nvme": {"path": str(tmp_path / "store")}}
    one = TwoRanks(tmp_path, 0, cache, publishes=True)
    yield one.ready()
    one.kill()


def test_answers_do_not_change_with_two_ranks(engine):
    """Loaded from memory, and after a restart from the stores of both ranks."""
    right = texts(answers(engine, ASKED))
    assert len(set(right)) > len(ASKED) // 2
    engine.forget()
    again = answers(engine, ASKED)
    assert texts(again) == right
    assert sum(tokens for _, tokens in again) >= loadable(ASKED)
    assert engine.counts()["kvtier:failed_blocks_total"] == 0
    until(lambda: len(stored(heard(engine), "NVMe")) >= len(stored(heard(engine), "CPU")), 30, "all on disk, at both")
    engine.restart()
    warm = answers(engine, ASKED)
    assert texts(warm) == right
    assert sum(tokens for _, tokens in warm) > 0.9 * loadable(ASKED)
