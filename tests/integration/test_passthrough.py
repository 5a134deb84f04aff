"""Ids of requests that kvway makes. What goes through unchanged, and what a proxy adds or takes away, is
tests/requests/passthrough."""

import re

from rig.client import CHAT, chat_body


def test_request_id_is_made_and_differs(pair):
    worker, router = pair()
    for _ in range(20):
        router.ask("POST", CHAT, body=chat_body())
    ids = [ex.headers.get("x-request-id") for ex in worker.requests]
    assert all(re.fullmatch(r"[0-9A-Za-z._-]{16,64}", i) for i in ids), ids
    assert len(set(ids)) == 20
