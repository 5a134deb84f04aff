"""Fragments of the small model in libkvtier: computed alone, stored, and put elsewhere with their keys turned by the
library. KVTIER_LIBRARY is its path, and the package kvtier has to be found."""

import torch
from blend_model import BLOCK, HEAD, KV_HEADS, LAYERS, Paged, run

from kvtier import fragments, library

CONFIG = f'{{"model_type": "llama", "head_dim": {HEAD}, "rope_theta": 10000.0}}'
MOST_S = 5


class Shelf:
    """A cache with room in memory and on disk; a second one on the same folder, after close, finds what is there."""

    def __init__(self, directory, fingerprint=bytes(32)):
        """fingerprint: of the weights."""
        text = f"l1: {{capacity: 32MiB}}\nnvme: {{path: {directory}, capacity: 64MiB}}\n"
        self.cache = library.Cache([text])
        assert self.cache.mistakes == "", self.cache.mistakes
        self.known = fragments.Fragments(
            self.cache, CONFIG, "float32", LAYERS, KV_HEADS, HEAD, chunk_tokens=BLOCK, fingerprint=fingerprint)

    def close(self):
        """What is stored is on disk then."""
        self.known.close()
        self.cache.close()

    @staticmethod
    def place(paged, slot):
        """Token `slot` of a text in these blocks."""
        keys = fragments.plane([layer[:, 0] for layer in paged.pool])
        values = fragments.plane([layer[:, 1] for layer in paged.pool])
        whole = fragments.Place(keys, values, BLOCK, len(paged.pool[0]))
        return whole.at(paged.blocks.tolist(), slot)

    def put(self, model, tokens, mark=None):
        """Computes a fragment alone, from position 0 on, and stores it. mark: a number in the place of all its values."""
        alone = Paged(list(range(-(-len(tokens) // BLOCK))))
        run(model, alone, tokens, torch.arange(len(tokens)))
        if mark is not None:
            for layer in alone.pool:
                layer.fill_(mark)
        return self.known.store(fragments.Text(tokens.tolist(), 0), self.place(alone, 0))

    def take(self, tokens, paged, at):
        """Puts a fragment where it stands in a text; how many of its tokens are in place."""
        text = fragments.Text(tokens.tolist(), at)
        if self.known.find(text, MOST_S * 10**9) < len(tokens):
            return 0
        return self.known.load(text, self.place(paged, at))


def chosen(scores, known, share):
    """Positions that the library would compute again, at this share of the tokens of `known`, [(first, count)]."""
    return torch.tensor(fragments.choose(known, len(scores), share, deviation=scores.tolist()), dtype=torch.long)
