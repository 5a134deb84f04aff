#!/usr/bin/env python3
"""blend_check.py - the small model that blending is measured on: its paged runs, moved keys, and tokens that are computed
again. Untrained weights from a seed. To be run by a Python that has torch; test_blend.py does."""

import torch
from blend_model import BLOCK, LAYERS, Model, Paged, rotate, run
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
    ):
        check(model, text)
        print(check.__name__)


if __name__ == "__main__":
    main()
