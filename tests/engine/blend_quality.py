#!/usr/bin/env python3
"""blend_quality.py [--steps N] [--texts N] - what a small model's answers lose when its prompt comes from fragments, and
what computing a share of the tokens again brings back. Prints JSON lines. To be run by a Python that has torch."""

import argparse
import json

import torch
from blend_model import BLOCK, LAYERS, Model, Paged, rotate, run
from blend_model import deviations as deviation_of
from blend_task import FRAGMENT, FRAGMENTS, VALUES, VOCABULARY, batch
from torch.nn import functional

LENGTH = FRAGMENT * FRAGMENTS


def train(steps, seed=1):
    """A model after so many steps: the same for the same seed and machine. Uses are asked for their value, too."""
    model, generator = Model(VOCABULARY, seed), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        tokens, uses, values, answers = batch(128, generator)
        logits = model(tokens)
        at_uses = logits.gather(1, uses[:, :, None].expand(-1, -1, VOCABULARY))
        loss = functional.cross_entropy(logits[:, -1], answers)
        loss = loss + functional.cross_entropy(at_uses.flatten(0, 1), values.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def fragments(model, prompt, cache, moved=True):
    """Fills the cache with fragments that were computed alone, each from position 0 on."""
    for first in range(0, len(prompt), FRAGMENT):
        alone, own = Paged([0]), torch.arange(FRAGMENT)
        run(model, alone, prompt[first:first + FRAGMENT], own)
        for layer in range(LAYERS):
            key, value = alone.read(layer, FRAGMENT)
            key = rotate(key, torch.full((FRAGMENT,), first)) if moved else key
            cache.write(layer, own + first, key, value)


def chosen(model, cache, prompt, share, how, generator):
    """Positions to compute again, in order."""
    count = round(len(prompt) * share)
    if how == "deviation":
        scores = deviation_of(model, cache, prompt)
    elif how == "first":
        scores = -(torch.arange(len(prompt)) % FRAGMENT).float()
    else:
        scores = torch.rand(len(prompt), generator=generator)
    return scores.argsort(descending=True, stable=True)[:count].sort().values


def answer(model, text, share=None, how="deviation", moved=True, generator=None):
    """Log probabilities of the values; share None: exact."""
    prompt, cache = text[:-1], Paged([3, 0, 4, 1, 2])
    if share is None:
        run(model, cache, prompt, torch.arange(LENGTH))
    else:
        fragments(model, prompt, cache, moved)
        again = chosen(model, cache, prompt, share, how, generator)
        if len(again):
            run(model, cache, prompt[again], again)
    logits = run(model, cache, text[-1:], torch.tensor([LENGTH]))
    return logits[0, :VALUES].log_softmax(-1)


def measure(model, texts, answers, share, how="deviation", moved=True):
    """Accuracy, and mean KL(exact || this) in nats."""
    generator, right, distance = torch.Generator().manual_seed(7), 0, 0.0
    for text, value in zip(texts, answers, strict=True):
        exact, got = answer(model, text), answer(model, text, share, how, moved, generator)
        right += int(got.argmax() == value)
        distance += float((exact.exp() * (exact - got)).sum())
    return {"accuracy": round(right / len(texts), 4), "kl": round(distance / len(texts), 5)}


def main():
    """Trains and measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--texts", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(2)
    assert BLOCK == FRAGMENT
    model = train(options.steps)
    texts, _, _, answers = batch(options.texts, torch.Generator().manual_seed(99))
    cases = [(None, "exact", True)]
    cases += [(share, "deviation", moved) for moved in (True, False) for share in (0, 0.05, 0.15, 0.3, 1.0)]
    cases += [(0.15, how, True) for how in ("first", "random")]
    for share, how, moved in cases:
        found = measure(model, texts, answers, share, how, moved)
        print(json.dumps({"model": f"toy-3x64, {options.steps} steps", "share": share, "chosen": how,
                          "moved": moved, "texts": options.texts, **found}), flush=True)


if __name__ == "__main__":
    main()
