"""One rank's cache and the thread that works for it.

The engine's own thread passes loads and stores, and later asks which are done; it never waits here while it has work to
compute. One other thread does the rest: the scheduler's questions, loads (bring chunks into memory, copy them into the
paged cache) and stores (copy blocks out into reserved room, commit). Loads go before stores.

A load of many chunks is requested in parts, several under way: while one part is copied into the paged cache the next
ones are being read from a tier, and copied chunks may leave memory. If a load is longer than half of memory only its
first quarter stays there; the rest leaves as soon as it is copied, and at most an eighth is under way. So a prompt that
is longer than memory is loaded completely and leaves more than half of other prompts' chunks in memory. Loads begin in
order, and wait while those before them take half of memory together.

A load that fails in part reports the blocks that were not filled; the engine computes them. A chunk becomes visible
only when all of it has been copied.

Loads and stores have the number of resets of the cache before them. A store from before the latest reset is dropped,
since other weights computed it; a load from before it fails; a load or store from after a reset unknown to this rank
announces that reset.

A reset gives the rank another identity: from then on its chunks have names that no other replica and no later process
makes, since the engine's present weights are unknown. Chunks in shared tiers stay there for other engines.
"""

import collections
import contextlib
import hashlib
import os
import selectors
import threading
import time

from . import adapters, blending, events, library, work
from .ask import NO_TENANT, Listener
from .groups import ENDS, WHOLE, end_keys
from .tiers import TierCounts
from .worth import Worth

COUNTERS = (
    "loads", "loaded_chunks", "failed_loads", "failed_blocks", "stores", "stored_chunks", "existing_chunks",
    "refused_chunks", "declined_chunks", "lookups", "lookup_chunks", "hit_chunks", "resets", "events",
    "lost_events", "stored_fragment_chunks", "loaded_fragment_chunks", "blended_requests",
)  # fmt: skip


class Loading:
    """A load under way, in parts. Belongs to the rank's thread."""

    def __init__(self, load, after, deadline):
        self.load, self.after, self.deadline = load, after, deadline
        self.keys = []
        self.begun = 0  # number of requested chunks
        self.filled = 0  # number of chunks in place
        self.bytes = 0  # bytes of all chunks
        self.asked_bytes = 0  # bytes of the requested chunks
        self.failed = False  # a chunk before the remaining ones is missing
        self.room = 0  # bytes of memory that are reserved for it, from its beginning to its end
        self.reported = False
        self.parts = collections.deque()  # parts that are requested and not copied yet, in order


class Part:
    """Chunks of a load from number `first` on; those from number `passing` of the part on do not stay in memory."""

    def __init__(self, first, count, size, passing):
        self.first, self.count, self.size, self.passing = first, count, size, passing
        self.done, self.lease = False, None


class Windows:
    """A question about a model with windows: its second part, once the chunks themselves are found."""

    def __init__(self, ends, names, tenant, until_ns, epoch):
        self.ends, self.names, self.tenant = ends, names, tenant
        self.until_ns, self.epoch = until_ns, epoch


def _flat(pieces):
    """Blocks of these pieces of a load, of all groups."""
    return [
        block for piece in pieces for ids in (piece.block_ids if piece.part in (WHOLE, ENDS) else [piece.block_ids])
        for block in ids
    ]  # fmt: skip


class Rank:
    """The cache of one rank over its paged KV cache."""

    MOST_STORES = 4096  # most waiting stores; a further one drops the oldest
    MOST_COPIES = 16  # copies into the paged cache at once; fewer fill a device's queues
    PART_BYTES = 16 << 20  # bytes of a load that are requested at once, or one chunk
    PARTS_BYTES = 64 << 20  # bytes of a load that are under way, or two parts
    MANY_OPS = 512  # operations under way, half of control.ops; beyond, each load has one part, to leave room
    MEASURE_S = 1.0
    LISTEN_S = 0.2  # interval of reading the tiers' events, which come without a signal
    ROOM_S = 0.2  # time to wait for memory that a tier is still writing, before a store is refused
    ROOM_PAUSE_S = 0.004  # time between two looks for room
    FULL_S = 1.0  # after a refusal, stores without room are refused at once for this long; then one waits again

    def __init__(self, cache, paged, key_parts, path, load_timeout_s, log, fetch_when_slower=False, fragments=None):
        """key_parts: a library.KeyParts without its chain id; path: of the socket; fragments: blending.Copies or None."""
        self.fragments = fragments
        self.cache = cache
        self.paged = paged
        self.parts = key_parts
        self.load_timeout_ns = int(load_timeout_s * 1e9)
        self.log = log
        self.lock = threading.Lock()  # guards the members below
        self.reported = threading.Condition(self.lock)  # signals: a load or a store ended
        self.loads = collections.deque()
        self.loads_open = 0
        self.stores = collections.deque()
        self.stores_open = collections.Counter()  # by request
        self.copying = None  # the request whose blocks are being read
        self.spoiled = False  # these were given to another request meanwhile
        self.stores_nothing = False  # from now on: the owners of blocks are unknown
        self.received, self.failed = set(), set()
        self.failed_requests = set()  # for engines with several groups of KV caches, which do not count blocks
        self.copied = []  # tickets of finished stores
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.stopping = self.ended = False
        # of the thread alone
        self.epoch = 0
        self.fingerprint = bytes(key_parts.fingerprint)  # the fingerprint at the start
        self.under_way = {}  # user -> its purpose
        self.complete = collections.deque()  # completions that were not handled yet
        self.not_over = set()  # Loadings that are not over
        self.memory = cache.memory_bytes() or self.PARTS_BYTES * 8
        self.part_bytes = min(self.PART_BYTES, self.memory // 16)
        self.parts_bytes = min(self.PARTS_BYTES, self.memory // 8)
        self.room_taken = 0  # memory reserved by loads that have begun
        self.waiting = collections.deque()  # Loadings that have not begun
        self.numbers = 0
        self.tiers, self.measured_at = TierCounts(), 0.0
        self.chunk_bytes = 0  # bytes of the latest chunk
        self.ends_bytes = 0  # bytes of the latest chunk's ends
        self.paged_in_groups = hasattr(paged, "parts")
        self.most_copies = max(1, self.MOST_COPIES // paged.caches) if self.paged_in_groups else self.MOST_COPIES
        self.worth = Worth(fetch_when_slower)
        self.full_since = None  # time when the first of the stores without room began to wait
        self.pausing = False  # the first store waits for room
        self.stream = paged.new_stream()
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.wake_fd, selectors.EVENT_READ, None)
        self.selector.register(cache.eventfd(), selectors.EVENT_READ, None)
        self.listener = Listener(path, self.selector)
        self.reporter = events.Reporter(cache, self.listener)
        self.thread = threading.Thread(target=self._main, name="kvtier-rank", daemon=True)
        self.thread.start()

    # --- the engine's thread ---

    def load(self, load, after=None):
        """Takes a load. after: an event of the device after which the blocks are no longer in use."""
        with self.lock:
            ended = self.ended
            self.loads_open += 1
            if not ended:
                self.loads.append((load, after))
        if ended:
            self._report(load, 0)
        else:
            self._wake()

    def store(self, stores, after=None):
        """Takes a store. after: an event of the device after which the blocks are complete."""
        with self.lock:
            if self.ended:
                self.copied += [store.ticket for store in stores if store.ticket]
                return
            for store in stores:
                self.stores.append((store, after))
                self.stores_open[store.request] += 1
            while len(self.stores) > self.MOST_STORES:
                self._closed(self.stores.popleft()[0])
                self.counters["refused_chunks"] += 1
        self._wake()

    def stored(self, requests):
        """Those of these requests whose blocks no store copies any more."""
        with self.lock:
            return {r for r in requests if not self.stores_open.get(r)}

    def give_up(self, requests):
        """Called when blocks of these requests are about to be given to others: waiting stores are dropped, and a copy
        under way is discarded at its end."""
        with self.lock:
            kept = collections.deque()
            for entry in self.stores:
                if entry[0].request in requests:
                    self._closed(entry[0])
                    self.counters["refused_chunks"] += 1
                else:
                    kept.append(entry)
            self.stores = kept
            if self.copying in requests:
                self.spoiled = True

    def wait_quiet(self, requests, limit_s):
        """Waits, at most limit_s, until no load is under way and no store copies from these requests' blocks."""

        def quiet():
            return self.loads_open == 0 and not any(r in self.stores_open for r in requests)

        with self.reported:
            self.reported.wait_for(quiet, limit_s)

    def leave_memory(self, limit_s):
        """Called when the engine is about to take its paged caches away: drops waiting stores, and returns when no copy
        from or into the caches runs. False: after limit_s a copy still ran."""
        with self.lock:
            open_stores = set(self.stores_open)
        self.give_up(open_stores)
        with self.reported:
            return self.reported.wait_for(lambda: self.loads_open == 0 and not self.stores_open, limit_s)

    def report_prefill(self, tokens, ns):
        """Notes that the engine computed that many tokens of prompts in that time."""
        self.cache.report_prefill(tokens, ns)

    def take_received(self):
        """(requests whose loads are over, blocks that were not filled) since the last call."""
        with self.lock:
            received, failed = self.received, self.failed
            self.received, self.failed = set(), set()
            return received, failed

    def take_failed_requests(self):
        """Requests that were not filled completely since the last call; call take_received before."""
        with self.lock:
            failed, self.failed_requests = self.failed_requests, set()
            return failed

    def take_copied(self):
        """Tickets of finished stores, with or without success, since the last call."""
        with self.lock:
            copied, self.copied = self.copied, []
            return copied

    def take_counters(self):
        """Counts since the last call."""
        with self.lock:
            counts = {name: count for name, count in self.counters.items() if count}
            self.counters = dict.fromkeys(COUNTERS, 0)
            return counts

    def close(self):
        with self.lock:
            self.stopping = True
        self._wake()
        self.thread.join(10)

    def _wake(self):
        with contextlib.suppress(OSError):  # the thread has ended
            os.eventfd_write(self.wake_fd, 1)

    # --- its own thread ---

    def _count(self, name, by=1):
        with self.lock:
            self.counters[name] = self.counters.get(name, 0) + by

    def _main(self):
        try:
            while self._turn():
                pass
        except Exception as error:  # the engine goes on without its cache
            self.log.exception("kvtier: the rank's thread ended: %s", error)
        finally:
            self._end()

    def _turn(self):
        with self.lock:
            busy, stopping = bool(self.loads or (self.stores and not self.pausing)), self.stopping
            pausing = self.pausing and bool(self.stores)
        patience_s = self.ROOM_PAUSE_S if pausing else self._patience_s()
        for key, _ in self.selector.select(0 if busy else patience_s):
            if key.fd == self.wake_fd:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self.wake_fd)
            elif key.data is self.listener:
                self.listener.accept()
            elif key.data is not None:
                self._hear(key.data)
        self._begin_loads()
        while self._poll():  # the end of a part's copy may let the next parts begin at once
            op, user, kind, _, count = self.complete.popleft()
            self._completed(op, user, kind, count)
        self._store_one()
        self._measure()
        self.reporter.report(self._count)
        return not stopping

    def _patience_s(self):
        return self.LISTEN_S if self.reporter.listeners() else self.MEASURE_S

    def _measure(self):
        """Adds the library's counts to those of take_counters(), now and then."""
        now = time.monotonic()
        if now - self.measured_at < self.MEASURE_S:
            return
        self.measured_at = now
        for name, by in self.tiers.changes(self.cache.metrics()).items():
            self._count(name, by)

    def _key(self, name, tenant=NO_TENANT, part=None):
        if part == work.FRAGMENT:
            return self.fragments.key(name, tenant)
        text = library.c_char_p(name)
        self.parts.chain_id = library.ctypes.cast(text, library.c_void_p)
        self.parts.chain_id_bytes = len(name)
        self.parts.tenant.bytes[:] = tenant
        key = self.cache.make_key(self.parts)
        return self.cache.ends_key(key) if part == ENDS else key

    # questions

    def _hear(self, client):
        questions = client.questions()
        if questions is None:
            self.listener.drop(client)
            return
        for number, limit_ns, epoch, tenant, names, ends in questions:
            self._is_old(epoch)
            self._question(client, number, limit_ns, tenant, names, ends)

    def _question(self, client, number, limit_ns, tenant, names, ends=0):
        self._count("lookups")
        self._count("lookup_chunks", len(names))
        if ends == blending.ASK_FRAGMENTS:
            keys = [self._key(name, tenant, work.FRAGMENT) for name in names] if self.fragments is not None else []
            ends = 0
        else:
            keys = [self._key(name, tenant) for name in names]
        windows = Windows(ends, names, tenant, time.monotonic_ns() + limit_ns, self.epoch) if ends else None
        op = self._begin(self.cache.find_begin, keys, limit_ns, ("find", client, number, keys, windows))
        if op is None:
            self._answer(client, number, 0, library.TIER_NONE)

    def _answer(self, client, number, count, tier):
        self._count("hit_chunks", count)
        if client.socket in self.listener.clients and not client.answer(number, count, tier):
            self.listener.drop(client)

    def _is_old(self, epoch):
        """Returns whether this was made before the latest reset. Resets the cache if it announces a reset."""
        if epoch > self.epoch:
            self._reset(epoch)
        return epoch < self.epoch

    def _reset(self, epoch):
        self.log.info("kvtier: cache reset, epoch %d: from now on nothing is shared with other engines", epoch)
        self.parts.fingerprint[:] = hashlib.sha256(self.fingerprint + os.urandom(32)).digest()
        if self.fragments is not None:
            self.fragments.renew(bytes(self.parts.fingerprint))
        self.cache.forget()
        self.epoch = epoch
        self._count("resets")

    # operations of the library

    def _begin(self, begin, keys, limit_ns, what):
        if not keys:
            return None
        self.numbers += 1
        self.under_way[self.numbers] = what  # before the operation can be complete
        op = begin(keys, limit_ns, self.numbers)
        if op is None:
            del self.under_way[self.numbers]
        return op

    def _poll(self):
        """Returns whether any operation is complete."""
        if not self.complete:
            self.complete.extend(self.cache.poll())
        return bool(self.complete)

    def _completed(self, op, user, kind, count):
        what = self.under_way.pop(user, None)
        if what is None:
            return
        if kind == library.OP_FIND and what[0] == "ends":
            self._found_ends(*what[1:], count)
        elif kind == library.OP_FIND:
            self._found(*what[1:], count)
        elif kind == library.OP_GET:
            lease = self.cache.take(op)
            loading, part = what[1:]
            if self._is_old(loading.load.epoch):  # reset meanwhile
                loading.failed = True
            part.done, part.lease = True, lease
            self._fill_parts(loading)
            self._begin_waiting()

    def _found(self, client, number, keys, windows, count):
        hits, tiers, fetch_ns, compute_ns = self.cache.estimate(keys)
        hits = min(hits, count)
        if windows is not None:
            self._find_ends(client, number, keys, windows, hits)
            return
        if hits and not self.worth.is_faster(hits * self.chunk_bytes, fetch_ns, compute_ns):
            self._count("declined_chunks", hits)
            hits = 0
        if hits:
            self.cache.prefetch(keys[:hits])
        self._answer(client, number, hits, tiers[hits - 1] if hits else library.TIER_NONE)

    def _find_ends(self, client, number, keys, windows, hits):
        """Checks whether windows are there after the first `hits` chunks: asks for the ends that this needs."""
        left_ns = windows.until_ns - time.monotonic_ns()
        if hits > 0 and left_ns > 0 and windows.epoch == self.epoch:
            asked = [self._key(windows.names[i], windows.tenant, ENDS) for i in end_keys(hits, windows.ends)]
            what = ("ends", client, number, keys, windows, hits, asked)
            if self._begin(self.cache.find_begin, asked, left_ns, what) is not None:
                return
        self._answer(client, number, 0, library.TIER_NONE)

    def _found_ends(self, client, number, keys, windows, hits, asked, count):
        if count < len(asked):  # one is missing, and so are all later boundaries that need it
            self._find_ends(client, number, keys, windows, hits - 1 - count)
            return
        there, tiers, fetch_ns, compute_ns = self.cache.estimate(keys[:hits])
        if there < hits:  # gone meanwhile, or no longer worth fetching
            self._find_ends(client, number, keys, windows, there)
            return
        size = hits * self.chunk_bytes
        if size > 0:
            fetch_ns += fetch_ns * len(asked) * self.ends_bytes // size
        if not self.worth.is_faster(size + len(asked) * self.ends_bytes, fetch_ns, compute_ns):
            self._count("declined_chunks", hits)
            self._answer(client, number, 0, library.TIER_NONE)
            return
        self.cache.prefetch(keys[:hits])
        self.cache.prefetch(asked)
        self._answer(client, number, hits, tiers[hits - 1])

    # loads

    def _part(self, one):
        """The copier of this object: with several groups of KV caches one of two."""
        if one.part == work.FRAGMENT:
            return self.fragments.of(one)
        return self.paged if one.part is None else self.paged.parts[one.part]

    def _begin_loads(self):
        while True:
            with self.lock:
                if not self.loads:
                    return
                load, after = self.loads.popleft()
                loading = Loading(load, after, time.monotonic_ns() + self.load_timeout_ns)
                self.not_over.add(loading)
            if self._is_old(load.epoch) or (self.fragments is None and any(c.part == work.FRAGMENT for c in load.chunks)):
                self._over(loading)
                continue
            loading.keys = [self._key(chunk.name, load.tenant, chunk.part) for chunk in load.chunks]
            loading.bytes = sum(self._part(chunk).chunk_bytes(chunk.count) for chunk in load.chunks)
            self.waiting.append(loading)
            self._begin_waiting()

    def _ask_parts(self, loading):
        """Requests the following parts, as far as they may be under way."""
        chunks, under_way = loading.load.chunks, sum(part.size for part in loading.parts)
        while not loading.failed and loading.begun < len(chunks):
            if len(loading.parts) >= 2 and under_way >= self.parts_bytes:
                return
            if loading.parts and len(self.under_way) >= self.MANY_OPS:  # tried again when an operation ends
                return
            part = self._next_part(loading)
            first, end, size = part.first, part.first + part.count, part.size
            limit_ns = max(loading.deadline - time.monotonic_ns(), 0)
            if self._begin(self.cache.get_begin, loading.keys[first:end], limit_ns, ("load", loading, part)) is None:
                if loading.parts:
                    return
                loading.failed = True
                return
            loading.begun = end
            loading.asked_bytes += size
            loading.parts.append(part)
            under_way += size

    def _next_part(self, loading):
        chunks, first = loading.load.chunks, loading.begun
        stays = self._stays(loading)
        size, count, passing = 0, 0, 0
        while first + count < len(chunks) and (count == 0 or size < self.part_bytes):
            one = chunks[first + count]
            size += self._part(one).chunk_bytes(one.count)
            count += 1
            if loading.asked_bytes + size <= stays:
                passing = count
        return Part(first, count, size, passing)

    def _stays(self, loading):
        """Bytes of it, from its beginning, that stay in memory."""
        return self.memory // 4 if loading.bytes > self.memory // 2 else loading.bytes

    def _let_go(self, part):
        """Releases a part that was copied, or never will be."""
        if part.lease is not None:
            self.cache.release_passing(part.lease, part.passing)
            part.lease = None

    def _begin_waiting(self):
        """Begins loads for which there is room, in order; if none has begun there is room for one."""
        while self.waiting:
            loading = self.waiting[0]
            if self._is_old(loading.load.epoch):  # reset meanwhile: no part is requested
                self._over(self.waiting.popleft())
                continue
            room = min(loading.bytes, self._stays(loading) + self.parts_bytes)
            if self.room_taken > 0 and self.room_taken + room > self.memory // 2:
                return
            self.waiting.popleft()
            loading.room = room
            self.room_taken += room
            self._ask_parts(loading)
            self._fill_parts(loading)

    def _fill_parts(self, loading):
        """Copies the parts that have arrived, in order, and requests more; reports the load when it is over."""
        while loading.parts and loading.parts[0].done:
            part = loading.parts.popleft()
            filled = 0
            try:
                if part.lease is not None and not loading.failed:
                    filled = self._fill(loading.load, part.first, loading.after, part.lease.contents)
            except BaseException:
                self._give_up_parts(loading)
                raise
            finally:
                self._let_go(part)
            loading.filled += filled
            loading.failed = loading.failed or filled < part.count
            self._ask_parts(loading)
        if not loading.parts:
            self._over(loading)

    def _give_up_parts(self, loading):
        """Called at the thread's end: no part is copied any more."""
        while loading.parts:
            self._let_go(loading.parts.popleft())
        loading.failed = True
        self._over(loading)

    def _over(self, loading):
        if not loading.reported:
            loading.reported = True
            self.not_over.discard(loading)
            self.room_taken -= loading.room
            # chunks copied before a reset are of other weights, too
            self._report(loading.load, 0 if loading.load.epoch < self.epoch else loading.filled)

    def _report(self, load, filled):
        left = load.chunks[filled:]
        missing = _flat(left)
        with self.lock:
            self.loads_open -= 1
            self.reported.notify_all()
            self.received.add(load.request)
            if not self.paged_in_groups:
                self.failed.update(missing)
            elif left:
                self.failed_requests.add(load.request)
            self.counters["loads"] += 1
            blended = bool(load.chunks) and load.chunks[0].part == work.FRAGMENT
            self.counters["loaded_fragment_chunks" if blended else "loaded_chunks"] += filled
            self.counters["blended_requests"] += blended and filled > 0
            self.counters["failed_blocks"] += len(missing)
            self.counters["failed_loads"] += bool(left)

    def _fill(self, load, start, after, lease):
        """Copies chunks from number `start` on into the paged cache, several at once; returns the number of chunks
        before the first failure."""
        began, copies, done = time.monotonic_ns(), collections.deque(), []
        try:
            for index in range(lease.count):
                chunk, view = load.chunks[start + index], lease.views[index]
                part = self._part(chunk)
                if view.bytes != part.chunk_bytes(chunk.count):
                    break
                first = view.first_segment
                room = [
                    (lease.segments[i].base, lease.segments[i].bytes)
                    for i in range(first, first + view.segment_count)
                ]
                if len(copies) >= self.most_copies:
                    done.append(copies.popleft()())
                with self.paged.on_stream(self.stream):
                    copies.append(part.scatter(chunk.block_ids, chunk.skip, chunk.count, room, after))
        finally:  # no copy may go on once the lease is released
            done += [wait() for wait in copies]
            if self.stream is not None:
                self.stream.synchronize()
        count = done.index(False) if False in done else len(done)
        if count:
            self.worth.copied(sum(lease.views[i].bytes for i in range(count)), time.monotonic_ns() - began)
        return count

    # stores

    def _store_one(self):
        with self.lock:
            if not self.stores:
                return
            store, after = self.stores.popleft()
            self.copying, self.spoiled = store.request, False
        self.pausing = False
        try:
            if self._is_old(store.epoch):
                self._count("refused_chunks")
            else:
                self.pausing = not self._put(store, after)
        finally:
            with self.lock:
                self.copying = None
                if self.pausing and not self.spoiled:
                    self.stores.appendleft((store, after))
                else:
                    self.counters["refused_chunks"] += self.pausing
                    self._closed(store)

    def _closed(self, store):
        """Under lock."""
        if store.ticket:
            self.copied.append(store.ticket)
        self.stores_open[store.request] -= 1
        if self.stores_open[store.request] <= 0:
            del self.stores_open[store.request]
            self.reported.notify_all()

    def _waits_for_room(self, status):
        """Returns whether a store that was refused with this status is tried again. A chain that is longer than memory
        passes through it as fast as a tier stores it."""
        now = time.monotonic()
        if status != library.FULL:
            return False
        if self.full_since is None or now - self.full_since >= self.ROOM_S + self.FULL_S:
            self.full_since = now
        return now - self.full_since < self.ROOM_S

    def _put(self, store, after):
        """Stores a chunk. False: there is no room yet."""
        if store.part == work.FRAGMENT and self.fragments is None:
            self._count("refused_chunks")
            return True
        fragment = work.FRAGMENT if store.part == work.FRAGMENT else None
        part = self._part(store)
        size = part.chunk_bytes(store.count or len(store.block_ids))
        if store.part == ENDS:
            self.ends_bytes = size
        elif not fragment:
            self.chunk_bytes = size
        item = work.item_of(store, self._key, size)
        status, reservation, rooms = self.cache.reserve([item])
        if reservation is None and self._waits_for_room(status):
            return False
        self._count("stores")
        if reservation is None:
            self._count("existing_chunks" if status == library.EXISTS else "refused_chunks")
            return True
        self.full_since, ready = None, 0
        try:
            with self.paged.on_stream(self.stream):
                copied = part.gather(store.block_ids, rooms[0], after)
            copied = copied and (store.files is None or adapters.are_there(store.files))
            with self.lock:
                ready = 1 if copied and not self.spoiled and not self.stores_nothing else 0
                self.counters["refused_chunks"] += not ready
        finally:
            if ready:
                self.cache.commit(reservation, ready)
                self._count("stored_fragment_chunks" if fragment else "stored_chunks")
            else:
                self.cache.abort(reservation)
        return True

    # end

    def _end(self):
        try:
            self._end_operations()
        finally:  # the engine waits for unreported loads
            self._end_all()
        if self.epoch > 0:
            self.cache.forget()  # no later process could find any of its chunks
        self.selector.close()
        os.close(self.wake_fd)
        if self.fragments is not None:
            self.fragments.close()
        self.paged.close()
        self.cache.close()

    def _end_operations(self):
        deadline = time.monotonic() + 5
        self.listener.close()
        while self.under_way and time.monotonic() < deadline:
            while self._poll():
                op, user, kind, _, _ = self.complete.popleft()
                what = self.under_way.pop(user, None)
                lease = self.cache.take(op) if kind == library.OP_GET else None
                if lease is not None:
                    self.cache.release(lease)
                if what is not None and what[0] == "load":
                    self._give_up_parts(what[1])
            time.sleep(0.01)

    def _end_all(self):
        for loading in list(self.not_over):
            self._give_up_parts(loading)
        with self.lock:
            self.ended = True
            waiting, self.loads = list(self.loads), collections.deque()
            self.copied += [store.ticket for store, _ in self.stores if store.ticket]
            self.stores.clear()
            self.stores_open.clear()
            self.reported.notify_all()
        for load, _ in waiting:
            self._report(load, 0)
