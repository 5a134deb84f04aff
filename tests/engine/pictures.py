"""Small images of random colours, for models of mk_tiny_model.py --images."""

import base64
import random
import struct
import zlib

TOKEN, TOKENS = 630, 16  # what stands for an image in a prompt that is sent; how many of them it becomes
SIDE = 56  # pixels


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def url(number):
    """The image of this number, as a data URL."""
    rng = random.Random(number)
    lines = b"".join(b"\0" + rng.randbytes(3 * SIDE) for _ in range(SIDE))
    about = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    parts = _chunk(b"IHDR", about) + _chunk(b"IDAT", zlib.compress(lines)) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode()


def collapse(prompt, images, end=None):
    """(token ids of the first `end` tokens, one for each image; numbers of these images). images: [(place of its first
    token, number)]. An image of which something is among them is whole."""
    ids, at, numbers = [], 0, []
    for place, number in images:
        if end is not None and place >= end:
            break
        ids += prompt[at : place + 1]
        at = place + TOKENS
        numbers.append(number)
    return ids + prompt[at:end], numbers


def body(ids, numbers, tokens, uuid_of=lambda number: None, **more):
    """Of a request to /inference/v1/generate. uuid_of: what the client calls an image, if anything."""
    return {
        "token_ids": ids,
        "content_parts": [
            {"type": "image_url", "url": url(number), "uuid": uuid_of(number)} for number in numbers
        ],
        "sampling_params": {"max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more},
    }  # fmt: skip
