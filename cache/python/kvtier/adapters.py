"""The content of a LoRA adapter's files, which is mixed into the names of chunks that the adapter computed.

The engine's hashes cover an adapter's name and path, not its files, which may be replaced. A thread of this module
computes their digest when the adapter is loaded: the engine core's thread reads no file. Until the digest is known, and
if there is none, prompts with the adapter are computed and not stored.

There is no digest for an adapter that is not a folder on this machine, or whose files changed after the engine began to
load it: the engine's contents are unknown then. The thread checks digested files each second; an adapter whose files
change loses its digest until the engine loads it again. The engine may read the files again at any time (of an adapter
that it had no room for), so a rank checks an adapter's files once more when a chunk has been copied, and drops the
chunk if they are not the digested ones (rank.py).

When other files come under the same name and path, the engine goes on with blocks that it has cached itself. Blocks
computed after these belong to neither version, so the load drops them: the engine's own prefix cache is emptied, and
requests that began before get a cache salt of their own. If that is impossible, prompts with the adapter are computed
and not stored until /reset_prefix_cache.

Only the engine core's thread calls these functions, except the thread's own.
"""

import hashlib
import json
import os
import pathlib
import queue
import threading
import time

from . import apart, weights

UNKNOWN = ()  # stands for an Adapter's unknown `made`
FORGET = "call /reset_prefix_cache to have them cached"


def print_of(path):
    """Identity of the files in an adapter's folder: another value once one of them, or a link on the way, was replaced
    or written to. OSError."""
    folder = pathlib.Path(os.path.abspath(path))
    seen = []
    for at in (*weights.links_to(folder), *weights.files_of(folder)):
        for s in (os.lstat(at), os.stat(at)):
            seen.append([str(at), s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns])
    return hashlib.sha256(json.dumps(seen).encode()).digest()


def are_there(files):
    """Returns whether these files, (path, print_of), still lie there."""
    try:
        return print_of(files[0]) == files[1]
    except OSError:
        return False


class Adapter:
    """One load of an adapter."""

    def __init__(self, path, since_ns):
        self.path, self.since_ns = path, since_ns  # 0: the engine's version is unknown
        self.files = self.content = None  # print and digest of its files, set by the thread
        self.over = threading.Event()  # the thread has finished with the adapter
        self.changed = False  # its files changed, or the files used for computing are unknown
        self.gone = False  # replaced, or its files changed; never reset
        self.outdated = False  # the engine has another version in its place: requests with it are kept apart
        self.used = False  # a request has used it
        self.after = None  # `made` of the version that computed blocks cached under its name; None: no blocks
        self.foreign = set()  # requests that may make the engine load another adapter under its id, until they end

    @property
    def made(self):
        """Text that distinguishes this load from others of its name and path."""
        return UNKNOWN if self.content is None or self.changed else (self.content, self.files)

    @property
    def is_mixed(self):
        """Returns whether the engine may have blocks of other files."""
        return bool(self.foreign) or (self.after is not None and (self.after == UNKNOWN or self.after != self.made))

    @property
    def digest(self):
        """32 bytes, or None: not known yet, or not any more."""
        content = self.content
        return None if self.gone or content is None or self.is_mixed else content

    @property
    def place(self):
        """Value of work.Store.files for stores of chunks that it computed."""
        return self.path, self.files

    @property
    def left(self):
        """`made` of the version that computed blocks under its name and path; None: none did."""
        if not self.used:
            return self.after
        return UNKNOWN if self.is_mixed else self.made


OUTDATED = Adapter("", 0)  # stands for requests that are kept apart
OUTDATED.gone = True


class Adapters:
    LOOK_S = 1.0
    SAME_S = 0.1  # a load waits this long for the digest, which files that were read before have at once
    MOST = 16384  # most loads under an id each; further ones are not cached

    def __init__(self, log=None, sees_loads=True):
        """sees_loads: `loaded` is called before each load; otherwise the time at which an adapter was loaded is
        unknown."""
        self.log = log
        self.engine = None  # changes.Engine
        self.busy = False
        self.known = {}  # (id, name, path) -> Adapter
        self.latest = {}  # (name, path) -> Adapter
        self.waiting = {}  # key -> Adapter that has foreign requests
        self.asked = queue.SimpleQueue()
        self.thread = None
        self.watched = {}  # the thread's: Adapter -> print of its files
        self.since_ns = None if sees_loads else weights.started_ns()
        self.digests = weights.Digests()

    def loaded(self, lora):
        """Called when the engine is about to load this adapter, perhaps once more."""
        key, in_place = self._key(lora), getattr(lora, "load_inplace", False)
        if key in self.known and not in_place:
            return  # the engine has it, or reads files that are checked
        others = [(k, a) for k, a in self.known.items() if k[0] == key[0] or k[1:] == key[1:]]
        after = self._left(key)
        made = self._begin(key, after)
        if after:
            made.over.wait(self.SAME_S)
        same = after is not None and not made.is_mixed
        for k, other in others:
            other.gone = True  # chunks of requests that began before have no name from now on
            other.outdated = not same or k[1:] != key[1:]
        if not in_place and (any(k[0] == key[0] for k, _ in others) or self._is_taken(key)):
            self._lose(made)  # the engine may have an adapter of this id
        if any(other.outdated for _, other in others) or (after is not None and not same):
            self._make_way(key, made)

    def _is_taken(self, key):
        """Returns whether requests live that make the engine load another adapter under this id, although it was
        removed."""
        loras = [getattr(request, "lora_request", None) for request in self.engine.requests()] if self.engine else ()
        return any(k[0] == key[0] and k[1:] != key[1:] for k in map(self._key, filter(None, loras)))

    def failed(self, lora):
        """Called when the engine could not load the adapter. The engine may have the former version."""
        key = self._key(lora)
        made = self.known.get(key)
        if made is None:
            return
        self._lose(made)
        if not made.used and not getattr(lora, "load_inplace", False):
            del self.known[key]
            if made.after is None and self.latest.get(key[1:]) is made:
                del self.latest[key[1:]]

    def unloaded(self, lora_id):
        """Called when the engine removed an adapter."""
        for key in [key for key in self.known if key[0] == lora_id]:
            self.known.pop(key).gone = True

    def of(self, lora):
        """The Adapter of a request; its digest may still be missing."""
        key = self._key(lora)
        found = self.known.get(key)
        if found is None:
            others = [other for k, other in self.known.items() if k[0] == key[0]]
            found = self._begin(key, self._left(key))
            if found.after is not None:
                self._say(found, "if its files are others than before: " + FORGET)
            for other in (*others, found) if others else ():  # finds the version that the engine has
                self._lose(other)
        found.used = True
        return found

    def keep_apart(self, request):
        """Keeps a request apart, before the engine looks for the request's blocks."""
        lora = getattr(request, "lora_request", None)
        if lora is None or self.engine is None or not (found := self.of(lora)).outdated:
            return
        key = self._key(lora)
        latest = self.latest.get(key[1:], found)
        try:
            apart.mark_outdated(request)
        except Exception as error:
            self._lose(latest)
            self._say(latest, f"a request with the one before it cannot be kept apart ({error!r})")
        for k, current in self.known.items():
            if k[0] == key[0] and k[1:] != key[1:] and not current.outdated:
                self._wait_for(k, current, [request.request_id])

    def ended(self, request_id):
        """Called when a request has ended."""
        for key, made in list(self.waiting.items()):
            made.foreign.discard(request_id)
            if not made.foreign:
                del self.waiting[key]
                if self.known.get(key) is made:
                    self._again(key, made, UNKNOWN)

    def forgot(self):
        """Called when the engine's own cache is empty."""
        for key, made in list(self.known.items()):
            if made.is_mixed and not made.outdated:
                self._again(key, made, None)

    def quiet(self):
        """Returns whether no adapter waits for its digest."""
        return self.asked.empty() and not self.busy

    @staticmethod
    def _key(lora):
        return getattr(lora, "lora_int_id", 0), lora.lora_name, lora.lora_path

    def _left(self, key):
        latest = self.latest.get(key[1:])
        return latest.left if latest is not None else None

    @staticmethod
    def _lose(adapter):
        """Notes that the engine's version is unknown, until the engine loads the adapter again in place."""
        adapter.since_ns, adapter.gone, adapter.changed = 0, True, True

    def _begin(self, key, after, since_ns=None):
        since_ns = since_ns if since_ns is not None else self.since_ns
        made = Adapter(key[2], since_ns if since_ns is not None else time.time_ns())
        made.after = after
        if key not in self.known and len(self.known) >= self.MOST:
            self._lose(made)
            return made
        self.known[key] = self.latest[key[1:]] = made
        if self.thread is None:
            self.thread = threading.Thread(target=self._main, name="kvtier-adapters", daemon=True)
            self.thread.start()
        self.asked.put(made)
        return made

    def _again(self, key, old, after):
        """Makes another Adapter of the loaded one: requests that began until now store nothing."""
        old.gone = True
        self._make_way(key, self._begin(key, after, old.since_ns))

    def _make_way(self, key, made):
        """Hides all blocks that requests with other adapters of its id, or of its name and path, have computed or will
        compute from requests that come from now on."""
        foreign = []
        try:
            for request in self.engine.requests():
                lora = getattr(request, "lora_request", None)
                k = self._key(lora) if lora is not None else (None, None, None)
                if k[0] == key[0] or k[1:] == key[1:]:
                    apart.mark_outdated(request)
                    if k[1:] != key[1:]:
                        foreign.append(request.request_id)
            if made.after is not None:
                self.engine.drop_blocks()
                made.after = None
                if self.log is not None:
                    self.log.info(
                        "kvtier: the engine's own prefix cache was emptied, since it had blocks of the LoRA adapter %s as "
                        "it was before", made.path)  # fmt: skip
        except Exception as error:
            made.after = UNKNOWN
            for other in self.known.values():
                other.changed = other.changed or other.outdated
            self._say(made, f"the engine has blocks of it as it was before, and keeps them ({error!r}); " + FORGET)
        if foreign:
            self._wait_for(key, made, foreign)

    def _wait_for(self, key, made, requests):
        """Notes requests that may make the engine load their adapter under the same id, in the place of this one."""
        made.foreign |= set(requests)
        self.waiting[key] = made

    # --- its own thread ---

    def _main(self):
        look_at = time.monotonic() + self.LOOK_S
        while True:
            try:
                self._next(self.asked.get(timeout=max(0.0, look_at - time.monotonic())))
            except queue.Empty:
                pass
            if time.monotonic() >= look_at:
                self._look()
                look_at = time.monotonic() + self.LOOK_S

    def _next(self, adapter):
        self.busy = True
        try:
            self._digest(adapter)
        except Exception as error:
            self._say(adapter, error)
        finally:
            self.busy = False
            adapter.over.set()

    def _say(self, adapter, why):
        if self.log is not None:
            self.log.warning("kvtier: prompts with the LoRA adapter %s are not cached: %s", adapter.path, why)

    def _digest(self, adapter):
        if not os.path.isdir(adapter.path):
            raise weights.Unnamed("it is not a folder on this machine")
        files = print_of(adapter.path)
        parts = weights.describe_folder(adapter.path, self.digests, adapter.since_ns)
        if print_of(adapter.path) != files:
            raise weights.Unnamed("its files changed while they were read")
        text = json.dumps(parts, sort_keys=True)
        self.watched[adapter] = adapter.files = files
        adapter.content = hashlib.sha256(text.encode()).digest()

    def _look(self):
        for adapter, files in list(self.watched.items()):
            if not adapter.gone:
                if are_there((adapter.path, files)):
                    continue
                adapter.changed = adapter.gone = True
                self._say(adapter, "its files changed; load it again to have it cached")
            del self.watched[adapter]
