"""Loads and stores of the connector while the engine's stream is late, over a model of a device: which stream they
come behind. tests/gpu runs the same on a real one."""

import functools
import pathlib
import sys

import pytest

from rig import stream_model
from rig.router import BUILD

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "cache" / "python"), str(ROOT / "tests" / "gpu")]

HERE = BUILD / "tests" / "unit" / "cache" / "gpu"
STAGING = 3


@pytest.fixture
def place(monkeypatch):
    """(driver, torch, streams): the modules over the model, for one test."""
    monkeypatch.setenv("KVTIER_LIBRARY", str(BUILD / "cache" / "core" / "libkvtier.so.1"))
    driver = stream_model.Driver(str(HERE / "libfakecuda.so"))
    torch = stream_model.torch_over(driver)
    for name in ("kvtier.layout", "streams"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    import streams
    from kvtier import copier

    members = {
        "driver": str(HERE / "libfakecuda.so").encode(), "library": str(HERE / "libkvtier_cuda_tested.so").encode(),
        "memo": b"", "method": STAGING,
    }  # fmt: skip
    monkeypatch.setattr(copier, "make", functools.partial(copier.make, **members))
    yield driver, torch, streams
    for name in ("kvtier.layout", "streams"):
        sys.modules.pop(name, None)


@pytest.fixture
def engine(place, tmp_path):
    driver, torch, streams = place
    device = stream_model.Device(driver, torch, streams.BLOCKS)
    one = streams.Engine(device, str(tmp_path / "rank.sock"))
    yield one
    one.close()
    device.close()


SCENARIOS = ["load_behind_reads", "many_chunks_behind_reads", "load_behind_writes", "store_behind_computing",
             "fragment_behind_reads", "fragment_behind_computing"]  # fmt: skip


def test_all_scenarios_are_run(place):
    assert [scenario.__name__ for scenario in place[2].SCENARIOS + place[2].FRAGMENTS] == SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_copies_come_behind_the_engines_stream(place, engine, scenario):
    getattr(place[2], scenario)(engine)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_event_of_the_default_stream_is_not_enough(place, engine, scenario, monkeypatch):
    """The control: with the wrong stream each of these finds wrong bytes."""
    _, torch, streams = place

    def wrong(timing=False):
        event = torch.cuda.Event()
        event.record(torch.cuda.default_stream())
        return event

    monkeypatch.setattr(engine.paged, "mark", wrong)
    with pytest.raises(AssertionError, match="blocks were|was overwritten"):
        getattr(streams, scenario)(engine)


def test_chunks_behind_one_that_failed_are_computed(place, engine, monkeypatch):
    streams = place[2]
    for number in range(4):
        engine.keep(f"c{number}", 2 + number)
    begin, begun = engine.paged.scatter, []

    def scatter(*arguments):
        wait = begin(*arguments)
        begun.append(arguments)
        return (lambda: wait() and False) if len(begun) == 3 else wait

    monkeypatch.setattr(engine.paged, "scatter", scatter)
    with engine.device.engine():
        engine.load_chunks("c", [(f"c{number}", streams.MANY[number]) for number in range(4)])
    loaded = None
    while not loaded:
        _, loaded = engine.worker.finished(set())
    assert len(begun) == 4
    assert engine.worker.take_failed() == {*streams.MANY[2], *streams.MANY[3]}
    assert [engine.numbers(streams.MANY[number]) for number in range(2)] == [{2}, {3}]
