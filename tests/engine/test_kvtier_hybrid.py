"""A model whose layers see different numbers of tokens back: vLLM keeps several groups of KV caches for it. kvtier
does nothing for it yet, and the engine is what it is without kvtier: same groups, same room, same answers."""

import re
import subprocess

import pytest
from connected import ConnectedEngine, answers, of_size, prompts, texts
from server import HERE, VENV

ASKED = prompts(40, 7)


class Windows(ConnectedEngine):
    name = "windows"
    model = None

    def environment(self):
        return {**super().environment(), "MODEL": str(self.model)}


@pytest.fixture(scope="module")
def model(directory):
    folder = directory / "windows"
    script = [f"{VENV}/bin/python", HERE / "mk_tiny_model.py", folder, "--window", "64", "--layers", "4"]
    subprocess.run(script, check=True, stdout=subprocess.DEVNULL)
    return folder


def run(directory, model, number, cache):
    """(answers, answers again, what its log says of its room, its counts)."""
    Windows.model = model
    engine = Windows(directory, number, cache, blocks=512)
    try:
        engine.ready()
        first = answers(engine, ASKED)
        return texts(first), answers(engine, ASKED), engine.log(), engine.counts()
    finally:
        engine.kill()


def room(log):
    """What vLLM says of its KV cache: tokens, and requests of the greatest length at once."""
    return re.search(r"KV cache size: ([\d,]+) tokens.*: ([\d.]+)x", log).groups()


def test_a_model_of_windows_and_full_attention(directory, model):
    right, again, log, _ = run(directory, model, 0, None)
    assert texts(again) == right and len(set(right)) > len(ASKED) // 2
    found, repeated, with_kvtier, counts = run(directory, model, 1, of_size(64))
    assert found == right and repeated == again  # the cached tokens of its own as well
    assert room(with_kvtier) == room(log)
    assert "groups of KV caches (hybrid attention), which are not supported" in with_kvtier
    assert counts["kvtier:stored_chunks_total"] == 0
