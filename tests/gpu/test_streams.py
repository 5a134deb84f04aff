"""Loads and stores of the connector on a real device, while the engine's stream is late (streams.py).

	KVTIER_LIBRARY=.../libkvtier.so.1 python3 -m pytest tests/gpu/test_streams.py

Needs torch with CUDA. run.sh calls it where that is there.
"""

import pathlib
import sys

import pytest
import torch

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "cache" / "python"), str(HERE)]

import streams  # noqa: E402
from kvtier import layout  # noqa: E402

LAYERS, SHAPE = 4, (8, streams.TOKENS, 2 * 128)
DELAY_CYCLES = 400_000_000  # a fifth of a second


class Device:
    def __init__(self):
        self.own = torch.cuda.Stream()
        self.tensors = {
            f"layer {i}": torch.zeros(streams.BLOCKS, *SHAPE, dtype=torch.bfloat16, device="cuda")
            for i in range(LAYERS)
        }
        torch.cuda.synchronize()

    def engine(self):
        return torch.cuda.stream(self.own)

    def delay(self):
        torch.cuda._sleep(DELAY_CYCLES)

    def put(self, blocks, number):
        for tensor in self.tensors.values():
            for block in blocks:
                tensor[block].fill_(number)

    def look(self, blocks):
        copies = [tensor[block].clone() for tensor in self.tensors.values() for block in blocks]
        own = torch.cuda.current_stream()

        def found():
            own.synchronize()
            return {number for copy in copies for number in copy.unique().tolist()}

        return found


@pytest.fixture(params=["libkvtier", "torch"])
def engine(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one = streams.Engine(Device(), str(tmp_path / "rank.sock"), request.param == "torch")
    yield one
    one.close()


ALL = pytest.mark.parametrize("scenario", [*streams.SCENARIOS, *streams.FRAGMENTS], ids=lambda s: s.__name__)


def leave_out(engine, scenario):
    if scenario in streams.FRAGMENTS and engine.worker.rank.fragments is None:
        pytest.skip("torch moves no fragments")


@ALL
def test_copies_come_behind_the_engines_stream(engine, scenario):
    leave_out(engine, scenario)
    scenario(engine)


@ALL
def test_an_event_of_the_default_stream_is_not_enough(engine, scenario, monkeypatch):
    """The control: with the wrong stream each of these finds wrong bytes."""
    leave_out(engine, scenario)

    def wrong(self, timing=False):
        event = torch.cuda.Event(enable_timing=timing)
        event.record(torch.cuda.default_stream(self.device))
        return event

    monkeypatch.setattr(layout.PagedCache, "mark", wrong)
    with pytest.raises(AssertionError, match="blocks were|was overwritten"):
        scenario(engine)
