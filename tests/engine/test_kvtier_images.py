"""Prompts of the same tokens and other images share nothing from an image on, wherever keys and values come from."""

import json
import random
import subprocess

import pictures
import pytest
from connected import CHUNK, ConnectedEngine, at_once, of_size
from server import HERE, VENV

HITS = "vllm:prompt_tokens_cached_by_source_total"
TOKENS = 8


def prompts(count):
    """[(tokens, place of the image)], each with one image in it: at its beginning, within its first chunk, behind it."""
    rng, made = random.Random(11), []
    for number in range(count):
        place = (0, rng.randrange(1, CHUNK), rng.randrange(CHUNK, 400))[number % 3]
        before, after = ([rng.randrange(10, 600) for _ in range(n)] for n in (place, rng.randrange(100, 600)))
        made.append((before + [pictures.TOKEN] * pictures.TOKENS + after, place))
    return made


ASKED = prompts(24)


class Seeing(ConnectedEngine):
    """An engine of a model that sees images. float32, in which no answer hangs on how the computation is split."""

    name = "seeing"
    model, processor = None, {}

    def environment(self):
        return {**super().environment(), "MODEL": str(self.model), "DTYPE": "float32"}

    def options(self):
        how = ["--mm-processor-kwargs", json.dumps(self.processor)] if self.processor else []
        return [*super().options(), "--enable-scale-out", *how]

    def see(self, images, named=False):
        """[(tokens, cached tokens)] of all prompts, each with its image of these numbers. named: the client gives each
        the name of its prompt, as long as those by content."""

        def one(asked):
            ((prompt, place), image), number = asked
            uuid = f"{number:064x}" if named else None
            body = pictures.body(*pictures.collapse(prompt, [(place, image)]), TOKENS, lambda _: uuid)
            answer = self.post("/inference/v1/generate", {"model": "tiny", **body})
            assert answer["usage"]["prompt_tokens"] == len(prompt)
            cached = answer["usage"]["prompt_tokens_details"] or {}
            return answer["choices"][0]["token_ids"], cached.get("cached_tokens") or 0

        found = at_once(one, zip(zip(ASKED, images, strict=True), range(len(ASKED)), strict=True))
        return [tokens for tokens, _ in found], [cached for _, cached in found]


@pytest.fixture(scope="module")
def model(directory):
    folder = directory / "images"
    script = [f"{VENV}/bin/python", HERE / "mk_tiny_model.py", folder, "--images"]
    subprocess.run(script, check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture
def engine_of(directory, model):
    started = []

    def start(cache, processor=None, **more):
        Seeing.model, Seeing.processor = model, processor or {}
        started.append(Seeing(directory, len(started), cache, blocks=512, **more))
        return started[-1].ready()

    yield start
    for engine in started:
        engine.kill()


ONES, OTHERS = range(24), range(100, 124)


def whole_chunks(tokens):
    return tokens // CHUNK * CHUNK


def test_other_images_are_other_prompts(directory, engine_of):
    alone = engine_of(None)
    ones, others = alone.see(ONES)[0], alone.see(OTHERS)[0]
    alone.kill()
    assert sum(one != other for one, other in zip(ones, others, strict=True)) > 0.9 * len(ASKED)
    engine = engine_of(of_size(64, nvme={"path": str(directory / "seen"), "capacity": "256MiB", "sync_time": "50ms"}))
    assert engine.see(ONES)[0] == ones
    engine.forget()
    found, cached = engine.see(OTHERS)
    assert found == others
    for (_, place), tokens in zip(ASKED, cached, strict=True):
        assert whole_chunks(place) <= tokens <= place
    for source in ("host", "disk"):
        if source == "disk":
            engine.wait_stored("nvme")
            engine.restart()
        for images, right in ((ONES, ones), (OTHERS, others)):
            engine.forget()
            found, cached = engine.see(images)
            assert found == right
            for (prompt, _), tokens in zip(ASKED, cached, strict=True):
                assert tokens >= whole_chunks(len(prompt) - 1)
        assert engine.counts()[f"{HITS}:{source}"] > 0.5 * sum(len(prompt) for prompt, _ in ASKED)
    assert engine.counts()["kvtier:failed_blocks_total"] == 0


def test_images_that_are_processed_otherwise_are_others(directory, engine_of):
    """What vLLM's hashes of images leave out, since it is the same for an engine's life."""
    store = of_size(64, nvme={"path": str(directory / "processed"), "capacity": "256MiB", "sync_time": "50ms"})
    one = engine_of(store)
    before, _ = one.see(ONES)
    one.wait_stored("nvme")
    one.kill()
    other = engine_of(store, {"image_mean": [0.9, 0.1, 0.5], "image_std": [0.1, 0.5, 0.9]})
    found, cached = other.see(ONES)
    assert sum(cached) == 0
    other.forget_all()
    assert other.see(ONES)[0] == found
    assert sum(was != now for was, now in zip(before, found, strict=True)) > 0.9 * len(ASKED)


def test_an_image_that_a_client_names_is_another_one_after_a_restart(directory, engine_of):
    """The client gives another picture the same uuid: the first one's keys and values lay on NVMe."""
    alone = engine_of(None)
    ones, others = alone.see(ONES)[0], alone.see(OTHERS)[0]
    alone.kill()
    engine = engine_of(of_size(64, nvme={"path": str(directory / "named"), "capacity": "256MiB", "sync_time": "50ms"}))
    assert engine.see(ONES, named=True)[0] == ones
    for own in ("/reset_mm_cache", "/reset_encoder_cache"):
        engine.post(own)
    engine.forget()  # then it would compute the other pictures itself
    found, cached = engine.see(OTHERS, named=True)
    wrong = sum(answer != right for answer, right in zip(found, others, strict=True))
    assert wrong == 0 and sum(cached) > 0
    found, cached = engine.see(OTHERS, named=True)
    assert found == others and sum(cached) > 0.8 * sum(len(prompt) for prompt, _ in ASKED)
    engine.wait_stored("nvme")
    engine.restart()
    found, cached = engine.see(ONES, named=True)
    wrong = sum(answer != right for answer, right in zip(found, ones, strict=True))
    print(f"\n{wrong} of {len(ASKED)} answers are wrong after the restart, {sum(cached)} tokens cached")
    assert wrong == 0
    for (_, place), tokens in zip(ASKED, cached, strict=True):
        assert whole_chunks(place) <= tokens <= place  # what is in front of the image


def test_names_without_images_change_the_answers(engine_of):
    """The control: if names did not differ by images, the answers to other images would be wrong."""
    engine = engine_of(of_size(64), module="imageless")
    ones, _ = engine.see(ONES)
    engine.forget()
    others, cached = engine.see(OTHERS)
    assert sum(cached) > 0.5 * sum(len(prompt) for prompt, _ in ASKED)
    engine.forget_all()
    right, _ = engine.see(OTHERS)
    wrong = sum(other != answer for other, answer in zip(others, right, strict=True))
    print(f"\nimageless: {wrong} of {len(ASKED)} answers to other images differ")
    assert wrong > 0.5 * len(ASKED)
