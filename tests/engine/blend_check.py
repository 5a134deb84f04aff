#!/usr/bin/env python3
"""blend_check.py - the small model that blending is measured on: its paged runs, moved keys, and tokens that are computed
again; and fragments of it that libkvtier keeps and moves. Untrained weights from a seed. To be run by a Python that has
torch, with KVTIER_LIBRARY and the package kvtier; test_blend.py does."""

import tempfile

import blend_shelf
import torch
from blend_model import BLOCK, LAYERS, Model, Paged, deviations, rotate, run
from blend_quality import answer, chosen, fragments
from blend_task import FRAGMENT, VOCABULARY, batch


def paged_prefill_and_decode_are_the_whole_text(model, text):
    cache, last = Paged([3, 0, 4, 1, 2]), len(text) - 1
    run(model, cache, text[:last], torch.arange(last))
    decoded = run(model, cache, text[last:], torch.tensor([last]))
    torch.testing.assert_close(decoded[0], model(text[None])[0, -1], atol=1e-4, rtol=1e-4)


def moved_keys_are_those_of_the_new_place(model, text):
    here = Paged([0])
    run(model, here, text[:BLOCK], torch.arange(BLOCK))
    _, key, _ = model.layers[0].project(model.embed(text[:BLOCK]), torch.arange(BLOCK) + 37)
    moved = rotate(here.read(0, BLOCK)[0], torch.full((BLOCK,), 37))
    torch.testing.assert_close(moved, key, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(here.read(0, BLOCK)[0], key, atol=1e-2)


def all_computed_again_is_exact_and_none_is_not(model, text):
    exact = answer(model, text)
    torch.testing.assert_close(answer(model, text, 1.0), exact, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(answer(model, text, 0), exact, atol=1e-4)


def first_fragment_needs_nothing(model, text):
    exact, blended = Paged([0, 1, 2, 3]), Paged([0, 1, 2, 3])
    run(model, exact, text[:-1], torch.arange(len(text) - 1))
    fragments(model, text[:-1], blended)
    for layer in range(LAYERS):
        for one, other in zip(exact.read(layer, FRAGMENT), blended.read(layer, FRAGMENT), strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    assert (chosen(model, blended, text[:-1], 0.15, "deviation", None) >= FRAGMENT).all()


def parts(text):
    """(first token, tokens) of each fragment of a prompt."""
    return [(first, text[first:first + FRAGMENT]) for first in range(0, len(text) - 1, FRAGMENT)]


def from_the_shelf(shelf, text):
    """A cache whose every fragment the library brought, and how many tokens that were."""
    paged = Paged([3, 0, 4, 1, 2])
    return paged, sum(shelf.take(tokens, paged, first) for first, tokens in parts(text))


def the_library_brings_what_torch_moves(model, text):
    """From memory, and from disk after a restart; for other weights it has nothing."""
    torch_moved = Paged([3, 0, 4, 1, 2])
    fragments(model, text[:-1], torch_moved)
    with tempfile.TemporaryDirectory() as folder:
        for again in (False, True):
            shelf = blend_shelf.Shelf(folder)
            if not again:
                assert [shelf.put(model, tokens) for _, tokens in parts(text)] == [FRAGMENT] * len(parts(text))
            paged, count = from_the_shelf(shelf, text)
            assert count == len(text) - 1
            for layer in range(LAYERS):
                for one, other in zip(paged.read(layer, count), torch_moved.read(layer, count), strict=True):
                    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
            shelf.close()
        other = blend_shelf.Shelf(folder, fingerprint=b"other" + bytes(27))
        assert from_the_shelf(other, text)[1] == 0
        other.close()


def the_library_chooses_what_torch_chooses(model, text):
    paged = Paged([3, 0, 4, 1, 2])
    fragments(model, text[:-1], paged)
    scores = deviations(model, paged, text[:-1])
    moved = [(first, FRAGMENT) for first, _ in parts(text)[1:]]  # the first one is where it was
    for share in (0.05, 0.15, 0.3):
        found = blend_shelf.chosen(scores, moved, share)
        mine = chosen(model, paged, text[:-1], len(found) / (len(text) - 1), "deviation", None)
        assert 0 < len(found) <= 0.3 * len(text) and found.tolist() == mine.tolist()


def marked_bytes_reach_blended_texts_alone(model, text):
    with tempfile.TemporaryDirectory() as folder:
        shelf = blend_shelf.Shelf(folder)
        exact = answer(model, text)
        for _, tokens in parts(text):
            shelf.put(model, tokens, mark=7.0)
        paged, count = from_the_shelf(shelf, text)
        assert count == len(text) - 1 and bool((paged.read(0, count)[1] == 7.0).all())
        assert torch.equal(answer(model, text), exact)
        shelf.close()


def main():
    """Runs all; an assertion ends it."""
    torch.set_num_threads(2)
    model = Model(VOCABULARY, 3).eval()
    text = batch(1, torch.Generator().manual_seed(5))[0][0]
    for check in (
        paged_prefill_and_decode_are_the_whole_text,
        moved_keys_are_those_of_the_new_place,
        all_computed_again_is_exact_and_none_is_not,
        first_fragment_needs_nothing,
        the_library_brings_what_torch_moves,
        the_library_chooses_what_torch_chooses,
        marked_bytes_reach_blended_texts_alone,
    ):
        check(model, text)
        print(check.__name__)


if __name__ == "__main__":
    main()
