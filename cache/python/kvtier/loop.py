"""Wakes an idle engine.

vLLM's interface cannot wake an engine: an idle engine waits only for its input queue. Its loop has a message, WAKEUP,
which it sends itself for a shutdown. So this module bypasses the interface, only for events, and only if there is such
a loop: an engine that is called, not running, is not woken. A paused engine is left alone.
"""

from .versions import EngineCoreRequestType


class Loop:
    """core: the engine core (changes.find_core), or None."""

    def __init__(self, core):
        self.core = core

    def rests(self):
        """Returns whether the engine is paused or asleep, and wants no step."""
        paused = getattr(self.core, "is_scheduler_paused", None)
        return paused is not None and paused()

    def wake(self):
        """Wakes the engine. Any thread."""
        if hasattr(self.core, "input_queue") and not self.rests():
            self.core.input_queue.put_nowait((EngineCoreRequestType.WAKEUP, None))
