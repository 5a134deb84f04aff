"""What an engine without kvtier answers, which is what every engine with it must answer.

One run serves all tests of a session. With KVW_ENGINE_ANSWERS=FILE it also serves later sessions, as
long as prompts, model and type are the same: for a run of the scenarios one by one.
"""

import hashlib
import json
import os
import pathlib

from connected import ANSWER_TOKENS, ASKED, LONG_TOKENS, texts
from server import MODEL, VENV

KEPT = os.environ.get("KVW_ENGINE_ANSWERS")


class Right:
    """short: answers of all prompts; long: {index: long answer} of some."""

    def __init__(self, asked, with_long):
        self.asked, self.with_long = asked, with_long
        self.short, self.long = [], {}

    def find(self, start):
        """start(): a ready engine without kvtier."""
        if not self._load():
            engine = start()
            try:
                self.short = texts([engine.complete(prompt) for prompt in self.asked])
                self.long = {i: engine.complete(self.asked[i], LONG_TOKENS)[0] for i in self.with_long}
            finally:
                engine.kill()
            self._keep()
        assert len(set(self.short)) > len(self.asked) // 2  # they do depend on the prompt
        return self

    def _about(self):
        digest = hashlib.sha256(json.dumps([self.asked, self.with_long]).encode())
        for text in (VENV, os.environ.get("DTYPE", ""), str(ANSWER_TOKENS), str(LONG_TOKENS)):
            digest.update(text.encode() + b"\0")
        for path in sorted(pathlib.Path(MODEL).iterdir()):
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def _load(self):
        if not KEPT or not os.path.exists(KEPT):
            return False
        kept = json.loads(pathlib.Path(KEPT).read_text())
        if kept["about"] != self._about():
            return False
        self.short = kept["short"]
        self.long = {int(index): text for index, text in kept["long"].items()}
        return True

    def _keep(self):
        if KEPT:
            kept = {"about": self._about(), "short": self.short, "long": self.long}
            pathlib.Path(KEPT).write_text(json.dumps(kept))


def compare(found, right, which=None):
    """found: answers to ASKED, or to those of these indexes."""
    which = range(len(found)) if which is None else which
    wrong = [i for i, (text, _) in zip(which, found, strict=True) if text != right.short[i]]
    assert not wrong, f"{len(wrong)} of {len(found)} answers differ: prompts of " + ", ".join(
        str(len(ASKED[i])) for i in wrong[:10]
    )
