"""Models whose layers see different numbers of tokens back: vLLM keeps several groups of KV caches for them. The engine has
the room that it has without kvtier, and answers do not depend on where keys and values come from."""

import re
import subprocess

import pytest
from connected import CHUNK, ConnectedEngine, answers, cached, of_size, prompts, texts
from server import HERE, VENV

ASKED = prompts(40, 7)
WINDOWS = (40, 100)  # tokens: less than a chunk, and more
HITS = "vllm:prompt_tokens_cached_by_source_total"


class Windows(ConnectedEngine):
    """float32, in which no answer hangs on how the computation is split."""

    name = "windows"
    model = None

    def environment(self):
        return {**super().environment(), "MODEL": str(self.model), "DTYPE": "float32"}


@pytest.fixture(scope="module", params=WINDOWS)
def model(directory, request):
    """Two layers of full attention, four of windows: three groups."""
    folder = directory / f"windows{request.param}"
    sizes = ["--window", str(request.param), "--layers", "6", "--full-every", "3"]
    script = [f"{VENV}/bin/python", HERE / "mk_tiny_model.py", folder, *sizes]
    subprocess.run(script, check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture
def engine_of(directory, model):
    started = []

    def start(cache, **more):
        Windows.model = model
        started.append(Windows(directory, len(started), cache, blocks=512, **more))
        return started[-1].ready()

    yield start
    for engine in started:
        engine.kill()


def room(log):
    """What vLLM says of its KV cache: tokens, and requests of the greatest length at once."""
    return re.search(r"KV cache size: ([\d,]+) tokens.*: ([\d.]+)x", log).groups()


def whole_chunks(asked):
    """Tokens of these prompts up to the end of the last chunk that can be loaded."""
    return sum((len(prompt) - 1) // CHUNK * CHUNK for prompt in asked)


def test_a_model_of_windows_and_full_attention(directory, engine_of):
    alone = engine_of(None)
    right, without = texts(answers(alone, ASKED)), room(alone.log())
    assert len(set(right)) > len(ASKED) // 2
    alone.kill()
    engine = engine_of(of_size(64, nvme={"path": str(directory / "store"), "capacity": "256MiB"}))
    assert room(engine.log()) == without
    assert texts(answers(engine, ASKED)) == right
    engine.forget()
    again = answers(engine, ASKED)
    assert texts(again) == right and cached(again) >= whole_chunks(ASKED)
    counts = engine.counts()
    assert counts["kvtier:failed_loads_total"] == 0 and counts[f"{HITS}:host"] >= 0.9 * whole_chunks(ASKED)
    engine.wait_stored("nvme")
    engine.restart()
    warm = answers(engine, ASKED)
    assert texts(warm) == right and cached(warm) >= whole_chunks(ASKED)
    assert engine.counts()[f"{HITS}:disk"] > 0.9 * whole_chunks(ASKED)


def test_zeros_in_the_cache_change_the_answers(engine_of):
    """The control: if what is loaded did not matter, equal answers would prove nothing."""
    engine = engine_of(of_size(64), module="zeroed")
    right = texts(answers(engine, ASKED))
    engine.forget()
    again = answers(engine, ASKED)
    loaded = [index for index, (_, tokens) in enumerate(again) if tokens]
    changed = [index for index in loaded if again[index][0] != right[index]]
    print(f"\nzeroed: {len(changed)} of {len(loaded)} answers with loaded blocks differ")
    assert len(loaded) > len(ASKED) // 2 and len(changed) > 0.9 * len(loaded)


def test_loads_that_fail_are_computed(engine_of):
    """vLLM takes such a load back as a whole, and its request is not loaded again."""
    engine = engine_of(of_size(64), module="failing")
    right = texts(answers(engine, ASKED))
    engine.forget()
    assert texts(answers(engine, ASKED)) == right
    assert engine.counts()["kvtier:failed_loads_total"] > len(ASKED) // 3
    assert engine.post("/reset_prefix_cache")["success"]  # no block of theirs is in use
    assert texts(answers(engine, ASKED)) == right
