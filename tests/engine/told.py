"""One request through kvway: what it reported of its choice, and what the engine says was
cached."""

import collections

from mixed import COMPLETIONS, text_of

WISH = [("x-kvway-explain", "1")]
Seen = collections.namedtuple("Seen", "prompt predicted actual worker reason knowledge")


def send(router, path, body, stream=False):
    """(text, Seen)"""
    answer = router.ask("POST", path, WISH, body={"model": "tiny", **body}, timeout=120)
    assert answer.status == 200, answer
    text, usage = text_of(answer, stream)
    told = {name: answer.headers.get(f"x-kvway-{name}") for name in ("worker", "reason", "knowledge")}
    predicted = int(answer.headers.get("x-kvway-predicted-cached-tokens"))
    cached = (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0
    return text, Seen(usage["prompt_tokens"], predicted, cached, **told)


def complete(router, prompt):
    return send(router, COMPLETIONS, {"prompt": prompt, "max_tokens": 1})[1]
