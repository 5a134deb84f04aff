"""A connector's Plan over ranks that answer what a test says, with requests and scheduler outputs as vLLM's."""

import pathlib
import sys
import time
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "cache" / "python"))

from kvtier import ask, settings  # noqa: E402
from kvtier.scheduler import Plan  # noqa: E402

BLOCK = 16


def name(number):
    return number.to_bytes(4, "big") * 8


class FakeAsker:
    def __init__(self):
        self.asked, self.replies, self.number, self.epoch = [], {}, 0, 0
        self.waits = []

    def ask(self, names, tenant=ask.NO_TENANT):
        self.number += 1
        self.asked.append(names)
        self.tenant = tenant
        return self.number

    def answer(self, number, wait_s=0.0):
        self.waits.append(wait_s)
        if number not in self.replies:
            time.sleep(wait_s)
        return self.replies.get(number)

    def forget(self, number):
        self.replies.pop(number, None)

    def reset(self):
        self.epoch += 1
        self.replies.clear()


def request_of(blocks, tokens=None, **more):
    tokens = blocks * BLOCK + 1 if tokens is None else tokens
    return types.SimpleNamespace(**{
        "request_id": "r", "num_tokens": tokens, "num_prompt_tokens": tokens,
        "block_hashes": [name(n) for n in range(blocks)], "all_token_ids": list(range(tokens)), **more,
    })  # fmt: skip


def output_of(new=(), cached=(), scheduled=None, resumed=()):
    cached = list(cached)
    return types.SimpleNamespace(
        scheduled_new_reqs=[
            types.SimpleNamespace(req_id=r, block_ids=(ids,), num_computed_tokens=done)
            for r, ids, done in new
        ],
        scheduled_cached_reqs=types.SimpleNamespace(
            req_ids=[r for r, _, _ in cached],
            new_block_ids=[(ids,) if ids is not None else None for _, ids, _ in cached],
            num_computed_tokens=[done for _, _, done in cached],
            resumed_req_ids=set(resumed),
        ),
        num_scheduled_tokens=scheduled or {},
        scheduled_spec_decode_tokens={},
    )


@pytest.fixture
def plan():
    made = Plan(FakeAsker(), settings.Settings(chunk_tokens=4 * BLOCK), BLOCK, True)
    made.adapters.SAME_S = 60  # however busy the machine is, a load learns whether its files are those of before
    return made


def store_all(plan, request, blocks):
    """What is stored of a request that is computed in one step."""
    plan.matched(request, 0)
    new = [(request.request_id, list(range(blocks)), 0)]
    return plan.step(output_of(new=new, scheduled={request.request_id: request.num_tokens}))[1]
