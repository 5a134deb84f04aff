"""A task that needs attention across fragments. A fragment has definitions (symbol, value) and uses (key, symbol); the
question names a key, and the answer is the value that its symbol had *before the use*: every symbol is defined
again, otherwise, after it. So a use has to be understood where it stands, and a fragment computed alone cannot.
Symbols, values and keys are eight each; a definition or a use is one token."""

import torch

FRAGMENT, FRAGMENTS, USES = 16, 4, 4
DEFINE, USE, ASK, FILL = 0, 64, 128, 136
VOCABULARY, VALUES = 144, 8


def batch(count, generator):
    """Texts [count, 65] whose last token asks, where their uses stand, the values of these, the answers."""
    length = FRAGMENT * FRAGMENTS

    def shuffled(many):
        return torch.rand(count, many, generator=generator).argsort(1)

    tokens = FILL + torch.randint(0, 8, (count, length + 1), generator=generator)
    spots = shuffled(length)[:, :3 * USES].view(count, USES, 3).sort(2).values
    symbols, keys = shuffled(8)[:, :USES], shuffled(8)[:, :USES]
    values = torch.randint(0, VALUES, (count, USES), generator=generator)
    others = (values + torch.randint(1, VALUES, (count, USES), generator=generator)) % VALUES
    tokens.scatter_(1, spots[:, :, 0], DEFINE + symbols * 8 + values)
    tokens.scatter_(1, spots[:, :, 1], USE + keys * 8 + symbols)
    tokens.scatter_(1, spots[:, :, 2], DEFINE + symbols * 8 + others)
    tokens[:, -1] = ASK + keys[:, 0]
    return tokens, spots[:, :, 1], values, values[:, 0]
