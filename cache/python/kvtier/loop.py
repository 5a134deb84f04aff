"""Wakes an engine that has nothing to do.

The interface has no way to wake an engine: one that has nothing to do waits for its input queue alone. Its loop has
a message for that, WAKEUP, which it sends itself for a shutdown. So this reaches past the interface, for events only,
and only if such a loop is there: an engine that is called, not running, is not woken. A paused one is left alone.
"""

from .versions import EngineCoreRequestType


class Loop:
    """core: the engine core (changes.find_core), or None."""

    def __init__(self, core):
        self.core = core

    def rests(self):
        """It is paused or asleep, and wants no step."""
        paused = getattr(self.core, "is_scheduler_paused", None)
        return paused is not None and paused()

    def wake(self):
        """From any thread."""
        if hasattr(self.core, "input_queue") and not self.rests():
            self.core.input_queue.put_nowait((EngineCoreRequestType.WAKEUP, None))
