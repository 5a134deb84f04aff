"""What is mixed into the names of chunks that a LoRA adapter computed: the content of its files.

The engine's hashes cover an adapter's name and path, not its files, which may be replaced. Their digest is made when
the adapter is loaded, in a thread of this module's own: the engine core's thread looks at no file. Until the digest is
there, and if there is none, prompts with the adapter are computed and not stored.

There is none for an adapter that is not a folder on this machine, and for one whose files changed after the engine
began to load it: what it holds cannot be known then. Files that were digested are looked at each second; an adapter
whose files change has no digest any more until the engine loads it again.

`loaded`, `unloaded` and `of` are called by the engine core's thread alone.
"""

import hashlib
import json
import os
import queue
import threading
import time

from . import weights


class Adapter:
    """One adapter as it was loaded once."""

    def __init__(self, path, since_ns):
        self.path, self.since_ns = path, since_ns
        self.content = None  # digest, by the thread
        self.gone = False  # replaced, or its files changed; never taken back

    @property
    def digest(self):
        """32 bytes, or None: not known yet, or not any more."""
        return None if self.gone else self.content


class Adapters:
    LOOK_S = 1.0

    def __init__(self, log=None, sees_loads=True):
        """sees_loads: `loaded` is called before each load; else an adapter that was not there when this process began
        may have been loaded at any time."""
        self.log = log
        self.busy = False
        self.known = {}  # (id, name, path) -> Adapter
        self.asked = queue.SimpleQueue()
        self.thread = None
        self.watched = {}  # of the thread: Adapter -> state of its files
        self.since_ns = None if sees_loads else weights.started_ns()
        self.digests = weights.Digests()

    def loaded(self, lora):
        """The engine is about to load this adapter, perhaps once more."""
        old = self.known.pop(self._key(lora), None)
        if old is not None and (getattr(lora, "load_inplace", False) or old.digest is None):
            old.gone = True  # chunks of requests that began before have no name from now on
            old = None
        if old is None:
            self._begin(lora)
        else:
            self.known[self._key(lora)] = old  # the engine has it, or reads files that are watched

    def unloaded(self, lora_id):
        """The engine removed an adapter."""
        for key in [key for key in self.known if key[0] == lora_id]:
            self.known.pop(key).gone = True

    def of(self, lora):
        """The Adapter of a request; its digest may be missing still."""
        found = self.known.get(self._key(lora))
        return found if found is not None else self._begin(lora)

    def quiet(self):
        """Nothing waits to be digested."""
        return self.asked.empty() and not self.busy

    @staticmethod
    def _key(lora):
        return getattr(lora, "lora_int_id", 0), lora.lora_name, lora.lora_path

    def _begin(self, lora):
        made = Adapter(lora.lora_path, self.since_ns if self.since_ns is not None else time.time_ns())
        self.known[self._key(lora)] = made
        if self.thread is None:
            self.thread = threading.Thread(target=self._main, name="kvtier-adapters", daemon=True)
            self.thread.start()
        self.asked.put(made)
        return made

    # --- its own thread ---

    def _main(self):
        while True:
            try:
                adapter = self.asked.get(timeout=self.LOOK_S)
            except queue.Empty:
                self._look()
                continue
            self.busy = True
            try:
                self._digest(adapter)
            except Exception as error:
                self._say(adapter, error)
            finally:
                self.busy = False

    def _say(self, adapter, why):
        if self.log is not None:
            self.log.warning("kvtier: prompts with the LoRA adapter %s are not cached: %s", adapter.path, why)

    def _digest(self, adapter):
        if not os.path.isdir(adapter.path):
            raise weights.Unnamed("it is not a folder on this machine")
        state = self._state(adapter.path)
        parts = weights.describe_folder(adapter.path, self.digests, adapter.since_ns)
        if self._state(adapter.path) != state:
            raise weights.Unnamed("its files changed while they were read")
        text = json.dumps(parts, sort_keys=True)
        self.watched[adapter] = state
        adapter.content = hashlib.sha256(text.encode()).digest()

    @staticmethod
    def _state(path):
        def times(file):
            s = os.stat(file)
            return file, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns

        return [times(file) for file in weights.files_of(path)]

    def _look(self):
        for adapter, state in list(self.watched.items()):
            if adapter.digest is not None:
                try:
                    same = self._state(adapter.path) == state
                except OSError:
                    same = False
                if same:
                    continue
                adapter.gone = True
                self._say(adapter, "its files changed; load it again to have it cached")
            del self.watched[adapter]
