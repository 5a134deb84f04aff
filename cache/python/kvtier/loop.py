"""The engine's loop that calls a connector, found from within a call.

The interface has no way to wake an engine: one that has nothing to do waits for its input queue alone. Its loop has
a message for that, WAKEUP, which it sends itself for a shutdown. So this reaches past the interface, for events only,
and only if such a loop is there: an engine that is called, not running, is not woken. A paused one is left alone.
"""

import sys

from .versions import EngineCoreRequestType


class Loop:
    """core: vLLM's, or None."""

    def __init__(self, core):
        self.core = core

    def rests(self):
        """It is paused or asleep, and wants no step."""
        paused = getattr(self.core, "is_scheduler_paused", None)
        return paused is not None and paused()

    def wake(self):
        """From any thread."""
        if self.core is not None and not self.rests():
            self.core.input_queue.put_nowait((EngineCoreRequestType.WAKEUP, None))


def find():
    """The loop that this is called from."""
    frame = sys._getframe(1)
    while frame is not None:
        core = frame.f_locals.get("self")
        if getattr(core, "input_queue", None) is not None:
            return Loop(core)
        frame = frame.f_back
    return Loop(None)
