#!/usr/bin/env python3
"""blend_quality.py [--steps N] [--texts N] [--plot FILE.svg] - what a small model's answers lose when its prompt comes from fragments, and
what computing a share of the tokens again brings back. Prints JSON lines. To be run by a Python that has torch."""

import argparse
import json

import torch
from blend_model import BLOCK, LAYERS, Model, Paged, rotate, run
from blend_model import deviations as deviation_of
from blend_task import FRAGMENT, FRAGMENTS, VOCABULARY, batch
from torch.nn import functional

LENGTH = FRAGMENT * FRAGMENTS
SHARES = (0.05, 0.15, 0.3)


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
    """Positions to compute again, in order: `share` of the prompt's tokens, none of the first fragment, which is exact."""
    count = round(len(prompt) * share)
    if how == "deviation":
        scores = deviation_of(model, cache, prompt)
    elif how == "first":
        scores = -(torch.arange(len(prompt)) % FRAGMENT).float()
    else:
        scores = torch.rand(len(prompt), generator=generator)
    order = scores[FRAGMENT:].argsort(descending=True, stable=True) + FRAGMENT
    return order[:count].sort().values


def answer(model, text, share=None, how="deviation", moved=True, generator=None):
    """Log probabilities of what follows the question; share None: exact."""
    prompt, cache = text[:-1], Paged([3, 0, 4, 1, 2])
    if share is None:
        run(model, cache, prompt, torch.arange(LENGTH))
    else:
        fragments(model, prompt, cache, moved)
        again = chosen(model, cache, prompt, share, how, generator)
        if len(again):
            run(model, cache, prompt[again], again)
    logits = run(model, cache, text[-1:], torch.tensor([LENGTH]))
    return logits[0].log_softmax(-1)


def measure(model, texts, answers, exact, share, how="deviation", moved=True):
    """Accuracy, and mean KL(exact || this) in nats over the whole vocabulary; exact: log probabilities of each text."""
    generator, right, distance = torch.Generator().manual_seed(7), 0, 0.0
    for text, value, wanted in zip(texts, answers, exact, strict=True):
        got = answer(model, text, share, how, moved, generator)
        right += int(got.argmax() == value)
        distance += float((wanted.exp() * (wanted - got)).sum())
    return right / len(texts), distance / len(texts)


def measure_all(model, count):
    """{(how, moved, share): (accuracy, KL)}, exact ones as ("exact", True, None)."""
    texts, _, _, answers = batch(count, torch.Generator().manual_seed(99))
    exact = [answer(model, text) for text in texts]
    found = {("exact", True, None): measure(model, texts, answers, exact, None)}
    for moved in (True, False):
        for share in (0, *SHARES, 1.0):
            found["deviation", moved, share] = measure(model, texts, answers, exact, share, "deviation", moved)
    for how in ("first", "random"):
        for share in SHARES:
            found[how, True, share] = measure(model, texts, answers, exact, share, how)
    return found


def plot(path, found, title):
    """Accuracy against the share as SVG."""
    lines = {}
    for (how, moved, share), (accuracy, _) in found.items():
        if share is not None and share <= SHARES[-1]:
            name = f"{how}{'' if moved else ', keys not moved'}"
            lines.setdefault(name, []).append((share, accuracy))
    start = lines["deviation"][0]
    parts = [f'<text x="60" y="24" font-size="14">{title}</text>']

    def place(share, accuracy):
        return 60 + share / SHARES[-1] * 420, 290 - accuracy * 240

    for percent in range(0, 101, 20):
        y = place(0, percent / 100)[1]
        parts.append(f'<line x1="60" y1="{y:.0f}" x2="480" y2="{y:.0f}" stroke="#ddd"/>'
                     f'<text x="54" y="{y + 4:.0f}" text-anchor="end">{percent} %</text>')
    for share in (0, *SHARES):
        parts.append(f'<text x="{place(share, 0)[0]:.0f}" y="308" text-anchor="middle">{share:g}</text>')
    parts.append('<text x="270" y="330" text-anchor="middle">share of the tokens computed again</text>')
    exact = place(0, found["exact", True, None][0])[1]
    parts.append(f'<line x1="60" y1="{exact:.1f}" x2="480" y2="{exact:.1f}" stroke="#555" stroke-dasharray="6 4"/>'
                 f'<text x="488" y="{exact - 4:.1f}">exact</text>')
    for number, (name, points) in enumerate(lines.items()):
        points = points if points[0][0] == 0 else [start, *points]
        dots = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in points)
        colour = ("#1660a8", "#c23b22", "#2c8a4b", "#b0892b")[number % 4]
        y = place(*points[-1])[1] + 14 * number
        parts.append(f'<polyline points="{dots}" fill="none" stroke="{colour}" stroke-width="{3 - min(number, 1)}"/>'
                     f'<text x="488" y="{y + 8:.1f}" fill="{colour}">{name}</text>')
    with open(path, "w", encoding="utf-8") as file:
        file.write('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 340" font-family="sans-serif" font-size="12">\n'
                   '<rect width="680" height="340" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n")


def main():
    """Trains and measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2600)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--plot", metavar="FILE.svg")
    options = parser.parse_args()
    torch.set_num_threads(2)
    assert BLOCK == FRAGMENT
    name = f"toy-3x64, {options.steps} steps"
    found = measure_all(train(options.steps), options.texts)
    best, lost = found["exact", True, None], found["deviation", True, 0]
    for (how, moved, share), (accuracy, distance) in found.items():
        line = {"bench": "fragments", "metric": "accuracy", "value": round(accuracy, 4), "unit": "ratio",
                "model": name, "share": share, "chosen": how, "moved": moved, "texts": options.texts,
                "kl_nats": round(distance, 5)}
        if best[0] > lost[0]:
            line["recovered"] = round((accuracy - lost[0]) / (best[0] - lost[0]), 4)
        print(json.dumps(line), flush=True)
    if options.plot:
        plot(options.plot, found, f"Accuracy of a small model ({name}) on fragments")


if __name__ == "__main__":
    main()
