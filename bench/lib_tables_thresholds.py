"""The table `thresholds` of the benchmark `tables`: from how many tokens on offloading is of use, by formula.

The publication recommends thresholds for one machine by size of model, and one sentence of its text names other
values for two of the models; it does not say over how many GPUs one copy of the model is spread. The formula is that of
`kvtier size --gpu`, which is asked for each model, and answers for each number of GPUs:

    GPU    tokens = (GPUs x 80 GiB x 0.9 - weights) / bytes a token in these GPUs
    memory tokens = 1.1 TB x 0.9 / bytes a token        (it keeps what the GPUs hold as well)

Nothing is run on GPUs and nothing is measured here, and nothing is fitted.
"""

import functools
import json
import math
import os
import subprocess
import tempfile
from dataclasses import dataclass

from lib_replay_plot import COLOURS, text
from lib_report import emit, say, table

NAME = "thresholds"
SOURCE = "LMI documentation, \"LMCache performance benefits\", for a p4de.24xlarge"
PROGRAM = "cache/command/kvtier"
MACHINE = ("--gpu", "8 x A100 80GB", "--ram", "1.1TB")
SPREAD = (1, 2, 4, 8)  # numbers of GPUs that hold one copy of the model
BUILD = None  # folder of the build that is measured; set before anything is asked
M = 10**6


@functools.cache
def ask(build, config):
    """Returns what `kvtier size` prints of a model on that machine."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write(config)
        file.flush()
        run = subprocess.run([os.path.join(build, PROGRAM), "size", "--json", *MACHINE, file.name],
                             capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


@dataclass(frozen=True)
class Model:
    """One model: its own configuration, and the values that are published for its size."""

    name: str
    hidden: int
    heads: int
    layers: int
    kv_heads: int
    inner: int
    vocabulary: int
    tied: bool  # embeddings in and out are one matrix
    offload: tuple  # ((place in the publication, most tokens that need no offloading), ...)
    memory: tuple  # (tokens from which a disk may be considered, tokens up to which memory may be)

    @property
    def sizes(self):
        return ask(BUILD, json.dumps({
            "hidden_size": self.hidden, "num_attention_heads": self.heads, "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads, "intermediate_size": self.inner, "vocab_size": self.vocabulary,
            "tie_word_embeddings": self.tied, "torch_dtype": "bfloat16",
        }))  # fmt: skip

    @property
    def token_bytes(self):
        return self.sizes["bytes_per_token"] * self.sizes["tensor_parallel"]

    def gpu_tokens(self, gpus):
        """Returns the tokens that the GPUs of one copy hold; 0 where the weights do not fit."""
        return next(spread["tokens"] for spread in self.sizes["offload"]["spreads"] if spread["gpus"] == gpus)

    @property
    def memory_tokens(self):
        return self.sizes["offload"]["memory_tokens"]


SMALL, LARGE = (6 * M, 8 * M), (2.5 * M, 3 * M)
MODELS = (
    Model("Qwen2.5-1.5B", 1536, 12, 28, 2, 8960, 151936, True, (("table", 2 * M), ("text", 2.5 * M)), (25 * M, 30 * M)),
    Model("Qwen2.5-7B", 3584, 28, 28, 4, 18944, 152064, False, (("table", 0.25 * M),), SMALL),
    Model("Llama-3.1-8B", 4096, 32, 32, 8, 14336, 128256, False, (("table", 0.25 * M),), SMALL),
    Model("Qwen2.5-72B", 8192, 64, 80, 8, 29568, 152064, False, (("table", 0.25 * M), ("text", 0.5 * M)), LARGE),
)


def millions(tokens):
    """Returns a number of tokens in millions as text."""
    return f"{tokens / M:.2f} M" if tokens else "does not fit"


def nearest(model, wanted):
    """Returns (GPUs, tokens) whose tokens are nearest to a published value."""
    return min(((gpus, model.gpu_tokens(gpus)) for gpus in SPREAD if model.gpu_tokens(gpus)),
               key=lambda pair: abs(math.log(pair[1] / wanted)))


def sentence(model, tolerance):
    """Returns a sentence on what explains the published values of one model."""
    parts = []
    for where, wanted in model.offload:
        gpus, tokens = nearest(model, wanted)
        if abs(tokens / wanted - 1) <= tolerance:
            parts.append(f"{millions(wanted)} ({where}) is what {gpus} GPU(s) hold")
        else:
            parts.append(f"{millions(wanted)} ({where}) is not what any number of GPUs holds; the nearest, "
                         f"{gpus}, hold {millions(tokens)}")
    low, high = model.memory
    within = low * (1 - tolerance) <= model.memory_tokens <= high * (1 + tolerance)
    parts.append(f"the machine's memory holds {millions(model.memory_tokens)}, "
                 f"{'as' if within else 'where'} {low / M:g} to {high / M:g} M are published")
    return f"{model.name}: {'; '.join(parts)}."


def show(tolerance):
    """Prints assumptions, the formula's values next to both published ones, and sentences."""
    say(f"\n== When offloading is of use, by formula  [computed, nothing is run]\n   published by {SOURCE}")
    say(f"   by kvtier size {' '.join(MACHINE)}: 90% of a GPU's 80 GiB and of 1.1 TB are for weights and KV;")
    say("   assumed: 2 bytes a parameter and value, parameters by the model's shapes;")
    say("   assumed: one copy of the model is spread over 1, 2, 4 or 8 GPUs (tensor parallelism is not published);")
    say("   assumed: memory keeps a copy of what the GPUs hold, so that it alone counts")
    rows = []
    for model in MODELS:
        published = dict(model.offload)
        rows.append([model.name, f"{model.token_bytes // 1024} KiB",
                     *(millions(model.gpu_tokens(gpus)) for gpus in SPREAD),
                     millions(published["table"]), millions(published["text"]) if "text" in published else "-",
                     millions(model.memory_tokens), f"{model.memory[0] / M:g}-{model.memory[1] / M:g} M"])
    table(f"{NAME}: tokens that need no offloading, and that memory holds, computed",
          ["", "a token", *(f"{gpus} GPU" for gpus in SPREAD), "table says", "text says", "memory", "published"], rows)
    for model in MODELS:
        say(f"   {sentence(model, tolerance)}")


def emit_json(tolerance):
    """Prints JSON lines: each published value with the formula's nearest one."""
    for model in MODELS:
        published = [("no_offload_tokens", where, wanted, *nearest(model, wanted)) for where, wanted in model.offload]
        published += [("memory_tokens", "table", wanted, None, model.memory_tokens) for wanted in model.memory]
        for metric, where, wanted, gpus, tokens in published:
            emit("tables", metric, tokens, "tokens", peer="published", ratio=tokens / wanted, peer_value=wanted,
                 table=NAME, said_in=where, model=model.name, gpus=gpus, computed=True,
                 reproduced=abs(tokens / wanted - 1) <= tolerance)


LEFT, TOP, WIDE, HIGH, LEGEND, BOTTOM = 70, 64, 420, 300, 190, 48
LOW, TOPMOST = 0.1 * M, 40 * M


def height_of(tokens):
    """Returns a height on a logarithmic axis."""
    share = math.log(min(max(tokens, LOW), TOPMOST) / LOW) / math.log(TOPMOST / LOW)
    return TOP + HIGH * (1 - share)


def place_of(index):
    return LEFT + WIDE * (index + 0.5) / len(SPREAD)


def lines_of(model, colour):
    """Draws the formula's values as a line, and published ones dashed."""
    points = [(place_of(i), height_of(model.gpu_tokens(gpus)))
              for i, gpus in enumerate(SPREAD) if model.gpu_tokens(gpus)]
    dots = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = [f'<polyline points="{dots}" fill="none" stroke="{colour}" stroke-width="2"/>']
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    for _, wanted in model.offload:
        y = height_of(wanted)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + WIDE}" y2="{y:.1f}" stroke="{colour}" '
                     'stroke-dasharray="5 4"/>')
    return parts


def write_plot(path):
    """Draws the tokens that need no offloading against the GPUs of one copy."""
    width, height = LEFT + WIDE + LEGEND, TOP + HIGH + BOTTOM
    parts = [text(LEFT, 22, "Tokens that need no offloading, against GPUs of one copy of the model", "start", 14),
             text(LEFT, 40, "computed, not measured; dashed: published", "start", 11),
             f'<rect x="{LEFT}" y="{TOP}" width="{WIDE}" height="{HIGH}" fill="none" stroke="#bbb"/>']
    for tick in (0.25, 0.5, 1, 2.5, 5, 10, 20):
        y = height_of(tick * M)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + WIDE}" y2="{y:.1f}" stroke="#eee"/>')
        parts.append(text(LEFT - 8, y + 4, f"{tick:g} M", "end", 11))
    parts += [text(place_of(i), TOP + HIGH + 18, f"{gpus}", size=11) for i, gpus in enumerate(SPREAD)]
    parts.append(text(LEFT + WIDE / 2, TOP + HIGH + 38, "GPUs of one copy"))
    for number, model in enumerate(MODELS):
        parts += lines_of(model, COLOURS[number])
        parts.append(text(LEFT + WIDE + 12, TOP + 16 + 18 * number, model.name, "start", 12,
                          f' fill="{COLOURS[number]}"'))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                   f'font-family="sans-serif">\n<rect width="{width}" height="{height}" fill="#fff"/>\n'
                   + "\n".join(parts) + "\n</svg>\n")
