"""A small transformer (RMSNorm, rotary positions, grouped queries, SwiGLU) on torch whose prompt's keys and values may
come from fragments: the model runner of the tests of blending. Its KV cache is paged, one tensor a layer,
[block, keys and values, token, head, value], as kvtier.layout expects (its first axis is the block).
"""

import torch
from torch import nn
from torch.nn import functional

BLOCK = 16
HEAD, HEADS, KV_HEADS, WIDTH, LAYERS = 16, 4, 2, 64, 3


def rotate(heads, positions, theta=10000.0):
    """[token, head, HEAD] turned by positions, halves as pairs; a turned key is moved by its distance."""
    half = HEAD // 2
    angle = positions.float()[:, None, None] * theta ** (-torch.arange(half).float() / half)
    low, high = heads[..., :half], heads[..., half:]
    return torch.cat((low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()), -1)


class Layer(nn.Module):
    """One layer; keys leave it turned, as an engine stores them."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.key = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.value = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.out = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def project(self, hidden, positions):
        """Queries, keys and values, each [..., token, head, HEAD]."""
        normed, shape = self.before(hidden), hidden.shape[:-1]
        query = rotate(self.query(normed).view(*shape, HEADS, HEAD), positions)
        key = rotate(self.key(normed).view(*shape, KV_HEADS, HEAD), positions)
        return query, key, self.value(normed).view(*shape, KV_HEADS, HEAD)

    def finish(self, hidden, query, key, value, seen):
        """The hidden states after the layer; seen: [query, key], which tokens attend to which."""
        query, key, value = (part.transpose(-3, -2) for part in (query, key, value))
        key, value = (part.repeat_interleave(HEADS // KV_HEADS, -3) for part in (key, value))
        got = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        hidden = hidden + self.out(got.transpose(-3, -2).flatten(-2))
        normed = self.after(hidden)
        return hidden + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Model(nn.Module):
    """Tokens to logits."""

    def __init__(self, vocabulary, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, tokens):
        """Logits of whole texts, exact: for training."""
        positions = torch.arange(tokens.shape[-1])
        seen, hidden = positions[:, None] >= positions, self.embed(tokens)
        for layer in self.layers:
            hidden = layer.finish(hidden, *layer.project(hidden, positions), seen)
        return self.head(self.norm(hidden))


class Paged:
    """A text's KV cache: blocks of one pool, in any order."""

    def __init__(self, block_ids):
        self.pool = [torch.zeros(max(block_ids) + 1, 2, BLOCK, KV_HEADS, HEAD) for _ in range(LAYERS)]
        self.blocks = torch.tensor(block_ids)

    def write(self, layer, positions, key, value):
        """Puts keys and values of some tokens into their slots."""
        block, slot = self.blocks[positions // BLOCK], positions % BLOCK
        self.pool[layer][block, 0, slot], self.pool[layer][block, 1, slot] = key, value

    def read(self, layer, count):
        """Keys and values of the first `count` tokens."""
        whole = self.pool[layer][self.blocks].transpose(0, 1).flatten(1, 2)
        return whole[0, :count], whole[1, :count]


@torch.no_grad()
def run(model, cache, tokens, positions):
    """Computes tokens at positions over what the cache holds before them, stores their keys and values, and returns their
    logits: a prefill (all positions), a decode (one more), and the tokens of a prompt that are computed again."""
    hidden, count = model.embed(tokens), int(positions.max()) + 1
    seen = positions[:, None] >= torch.arange(count)
    for number, layer in enumerate(model.layers):
        query, key, value = layer.project(hidden, positions)
        cache.write(number, positions, key, value)
        hidden = layer.finish(hidden, query, *cache.read(number, count), seen)
    return model.head(model.norm(hidden))


@torch.no_grad()
def deviations(model, cache, tokens):
    """Squared distance, for each token, of the second layer's keys and values from the cache's: the first layer's
    depend on the token alone, the second's are the first to know the text around it."""
    positions = torch.arange(len(tokens))
    hidden, first = model.embed(tokens), model.layers[0]
    hidden = first.finish(hidden, *first.project(hidden, positions), positions[:, None] >= positions)
    _, key, value = model.layers[1].project(hidden, positions)
    old = cache.read(1, len(tokens))
    return ((key - old[0]) ** 2 + (value - old[1]) ** 2).sum((1, 2))
