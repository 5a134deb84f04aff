"""libkvtier by ctypes: one class, Cache, whose methods are the C functions that the connector needs.

ctypes releases the GIL during each call and no call of the library comes back into Python: slow operations are begun,
announced by an eventfd, and polled. Configuration goes in as YAML, so that no struct of it has to be copied here; the
structs below are those of include/kvtier/kvtier.h, members in its order.

Threads: every method may be called from any thread, except open and close.
"""

import ctypes
import hashlib
import os
import pathlib
import re
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_uint8
from ctypes import c_uint32, c_uint64, c_void_p

from . import events

KEY_BYTES = 32
CONFIG_BYTES = 8192  # room for struct kvt_config of this version and of later ones

OK, MISS, EXISTS, FULL, BUSY, EINVAL = range(6)
ECORRUPT = 8
OP_GET, OP_ERASE, OP_DRAIN, OP_FIND = 1, 2, 3, 4
TIER_NAMES = ("l1", "nvme", "l2")
TIER_NONE = 255


class KvtierError(Exception):
    """A call of libkvtier failed; the text names the call and the reason."""


class Key(Structure):
    _fields_ = [("bytes", c_uint8 * KEY_BYTES)]


class Tenant(Structure):
    _fields_ = [("bytes", c_uint8 * 16)]


class KeyParts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("rank", c_uint32),
        ("chain_id", c_void_p),
        ("chain_id_bytes", c_size_t),
        ("hash_recipe", c_char_p),
        ("hash_seed", c_char_p),
        ("fingerprint", c_uint8 * 32),
        ("tenant", Tenant),
    ]


class Lookup(Structure):
    _fields_ = [
        ("hits", c_size_t),
        ("worth", c_size_t),
        ("fetch_ns", c_uint64),
        ("recompute_ns", c_uint64),
    ]


class Segment(Structure):
    _fields_ = [("base", c_void_p), ("bytes", c_uint64), ("arena_offset", c_uint64)]


class View(Structure):
    _fields_ = [
        ("first_segment", c_uint32),
        ("segment_count", c_uint32),
        ("bytes", c_uint64),
        ("tier", c_uint8),
    ]


class Lease(Structure):
    _fields_ = [
        ("views", POINTER(View)),
        ("count", c_size_t),
        ("segments", POINTER(Segment)),
        ("segment_count", c_size_t),
    ]


class Blocks(Structure):
    _fields_ = [
        ("hashes", c_char_p),
        ("hash_bytes", c_uint32),
        ("count", c_uint32),
        ("parent", c_char_p),
        ("tokens", POINTER(c_uint32)),
        ("block_size", c_uint32),
        ("lora_name", c_char_p),
        ("lmcache_hash", c_uint64),
        ("has_lmcache_hash", c_uint32),
        ("reserved", c_uint32),
    ]


class Item(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("tokens", c_uint32),
        ("key", Key),
        ("parent", POINTER(Key)),
        ("bytes", c_uint64),
        ("tenant", Tenant),
        ("ttl_ns", c_uint64),
        ("blocks", POINTER(Blocks)),
        ("blocks_size", c_uint32),
        ("flags", c_uint32),
    ]


class Completion(Structure):
    _fields_ = [
        ("op", c_uint64),
        ("user", c_uint64),
        ("kind", c_uint32),
        ("status", c_uint32),
        ("count", c_uint64),
    ]


class Event(Structure):
    _fields_ = [
        ("sequence", c_uint64),
        ("kind", c_uint32),
        ("tier", c_uint32),
        ("hashes", POINTER(c_uint8)),
        ("hash_bytes", c_uint32),
        ("count", c_uint32),
        ("parent", POINTER(c_uint8)),
        ("tokens", POINTER(c_uint32)),
        ("block_size", c_uint32),
        ("lora_name", c_char_p),
    ]


# Arguments of each function; all but those named below return an enum kvt_status.
FUNCTIONS = {
    "kvt_config_init": [c_void_p, c_size_t],
    "kvt_config_read": [c_void_p, c_char_p, c_char_p, c_size_t, POINTER(c_void_p)],
    "kvt_config_finish": [c_void_p],
    "kvt_text_free": [c_void_p],
    "kvt_open": [c_void_p, POINTER(c_void_p)],
    "kvt_close": [c_void_p],
    "kvt_reset": [c_void_p],
    "kvt_forget": [c_void_p, c_uint64],
    "kvt_drain": [c_void_p, c_uint64],
    "kvt_key_make": [POINTER(KeyParts), POINTER(Key)],
    "kvt_key_ends": [POINTER(Key), POINTER(Key)],
    "kvt_tenant_of": [c_char_p, c_size_t, POINTER(Tenant)],
    "kvt_lmcache_root": [c_void_p, POINTER(c_uint64)],
    "kvt_lmcache_hash": [c_void_p, c_uint64, c_void_p, c_size_t, POINTER(c_uint64)],
    "kvt_lookup": [c_void_p, c_void_p, c_size_t, c_uint32, c_void_p, POINTER(Lookup)],
    "kvt_find_begin": [c_void_p, c_void_p, c_size_t, c_uint32, c_uint64, c_uint64, POINTER(c_uint64)],
    "kvt_get_begin": [c_void_p, c_void_p, c_size_t, c_uint64, c_uint64, POINTER(c_uint64)],
    "kvt_get_take": [c_void_p, c_uint64, POINTER(POINTER(Lease))],
    "kvt_release": [c_void_p, POINTER(Lease)],
    "kvt_release_passing": [c_void_p, POINTER(Lease), c_size_t],
    "kvt_cancel": [c_void_p, c_uint64],
    "kvt_prefetch": [c_void_p, c_void_p, c_size_t],
    "kvt_put_reserve": [
        c_void_p, POINTER(Item), c_size_t, POINTER(c_void_p), POINTER(POINTER(Segment)),
        POINTER(c_uint32), POINTER(c_uint32),
    ],
    "kvt_put_commit": [c_void_p, c_void_p, c_size_t, c_void_p],
    "kvt_put_abort": [c_void_p, c_void_p],
    "kvt_report_prefill": [c_void_p, c_uint64, c_uint64],
    "kvt_eventfd": [c_void_p],
    "kvt_poll": [c_void_p, POINTER(Completion), c_size_t],
    "kvt_events": [c_void_p, POINTER(Event), c_size_t],
    "kvt_metrics": [c_void_p, POINTER(c_void_p)],
    "kvt_trace": [c_void_p, c_size_t, POINTER(c_void_p)],
    "kvt_status_text": [c_int],
    "kvt_version": [],
}
RESULTS = {
    "kvt_poll": c_size_t, "kvt_events": c_size_t, "kvt_status_text": c_char_p, "kvt_version": c_char_p,
    "kvt_config_init": None, "kvt_config_finish": None, "kvt_text_free": None, "kvt_close": None,
    "kvt_key_ends": None, "kvt_tenant_of": None, "kvt_release": None, "kvt_release_passing": None, "kvt_put_abort": None, "kvt_report_prefill": None,
}  # fmt: skip


def tenant_of(salt):
    """kvt_tenant_of of a cache salt or None, without the library; a test compares both."""
    if not salt:
        return bytes(16)
    domain, data = b"kvtier tenant 1", salt.encode()
    lengths = [len(field).to_bytes(8, "little") for field in (domain, data)]
    return hashlib.sha256(lengths[0] + domain + lengths[1] + data).digest()[:16]


def find_library():
    """Path of libkvtier.so: KVTIER_LIBRARY, else in this file's folder, else by the loader's own search."""
    given = os.environ.get("KVTIER_LIBRARY")
    if given:
        return given
    local = pathlib.Path(__file__).parent / "libkvtier.so"
    return str(local) if local.exists() else "libkvtier.so.1"


def load_library():
    """The library with the types of its functions set."""
    path = find_library()
    try:
        lib = ctypes.CDLL(path)
    except OSError as error:
        raise KvtierError(
            f"libkvtier cannot be loaded from {path}: {error}; set KVTIER_LIBRARY to its path"
        ) from error
    for name, arguments in FUNCTIONS.items():
        function = getattr(lib, name, None)
        if function is None:
            raise KvtierError(f"{path} has no {name}: it is of another version than this package")
        function.argtypes = arguments
        function.restype = RESULTS.get(name, c_int)
    return lib


def pack_keys(keys):
    """Keys, 32 bytes each, as one array for C."""
    return b"".join(keys)


class Cache:
    """One open cache. Keys are bytes of length 32."""

    def __init__(self, texts, name="kvtier"):
        """Opens the cache by YAML texts; a later text overrides those before. Mistakes are in `self.mistakes`; correct
        settings apply."""
        self.lib = load_library()
        self.handle = c_void_p()
        self.mistakes = ""
        self.last_event = 0  # number of the latest
        config = ctypes.create_string_buffer(CONFIG_BYTES)
        self.lib.kvt_config_init(config, CONFIG_BYTES)
        try:
            for text in texts:
                self._read(config, name, text.encode())
            self._check("kvt_open", self.lib.kvt_open(config, byref(self.handle)))
        finally:
            self.lib.kvt_config_finish(config)

    def _read(self, config, name, text):
        report = c_void_p()
        status = self.lib.kvt_config_read(config, name.encode(), text, len(text), byref(report))
        if report.value:
            self.mistakes += ctypes.string_at(report.value).decode(errors="replace")
            self.lib.kvt_text_free(report)
        if status not in (OK, EINVAL):
            self._check("kvt_config_read", status)

    def _check(self, what, status):
        if status != OK:
            text = self.lib.kvt_status_text(status).decode()
            raise KvtierError(f"{what}: {text}")

    def close(self):
        """Closes the cache; to be called once, when no other call is running."""
        self.lib.kvt_close(self.handle)
        self.handle = c_void_p()

    def version(self):
        return self.lib.kvt_version().decode()

    def eventfd(self):
        """Descriptor that is readable when poll() has results."""
        return self.lib.kvt_eventfd(self.handle)

    def make_key(self, parts):
        """Storage key of a chunk from its KeyParts."""
        key = Key()
        self._check("kvt_key_make", self.lib.kvt_key_make(byref(parts), byref(key)))
        return bytes(key.bytes)

    def ends_key(self, key):
        """Storage key of the ends of the chunk of this storage key."""
        made = Key()
        made.bytes[:] = key
        self.lib.kvt_key_ends(byref(made), byref(made))
        return bytes(made.bytes)

    def lookup(self, keys):
        """(hits that are worth fetching, tier of each) without waiting."""
        return self.estimate(keys)[:2]

    def estimate(self, keys):
        """(hits that are worth fetching, tier of each, ns to fetch them, ns to compute them or 0: unknown)."""
        tiers = (c_uint8 * max(1, len(keys)))()
        out = Lookup()
        self._check("kvt_lookup", self.lib.kvt_lookup(
            self.handle, pack_keys(keys), len(keys), 0, tiers, byref(out)))  # fmt: skip
        return out.worth, list(tiers[: out.worth]), out.fetch_ns, out.recompute_ns

    def find_begin(self, keys, timeout_ns, user):
        """Begins a question to all tiers; its completion has the count. None: too many are under way."""
        op = c_uint64()
        status = self.lib.kvt_find_begin(
            self.handle, pack_keys(keys), len(keys), 0, timeout_ns, user, byref(op))
        return op.value if status == OK else None

    def get_begin(self, keys, timeout_ns, user):
        """Begins to bring chunks into memory; None: too many are under way."""
        op = c_uint64()
        status = self.lib.kvt_get_begin(
            self.handle, pack_keys(keys), len(keys), timeout_ns, user, byref(op))
        return op.value if status == OK else None

    def prefetch(self, keys):
        self.lib.kvt_prefetch(self.handle, pack_keys(keys), len(keys))

    def take(self, op):
        """The lease of a completed get, or None. To be given back with release()."""
        lease = POINTER(Lease)()
        if self.lib.kvt_get_take(self.handle, op, byref(lease)) != OK:
            return None
        return lease

    def release(self, lease):
        self.lib.kvt_release(self.handle, lease)

    def release_passing(self, lease, first):
        """Makes chunks from number `first` on leave memory at once, if a tier had to bring them and no other caller
        wants them."""
        self.lib.kvt_release_passing(self.handle, lease, first)

    def cancel(self, op):
        self.lib.kvt_cancel(self.handle, op)

    def poll(self, most=64):
        """[(op, user, kind, status, count)] of completed operations."""
        out = (Completion * most)()
        count = self.lib.kvt_poll(self.handle, out, most)
        return [(c.op, c.user, c.kind, c.status, c.count) for c in out[:count]]

    def reserve(self, items):
        """Reserves room for chunks: (status, reservation or None, [segments of each or None])."""
        array = (Item * len(items))(*items)
        reservation = c_void_p()
        segments = POINTER(Segment)()
        counts = (c_uint32 * len(items))()
        status = (c_uint32 * len(items))()
        got = self.lib.kvt_put_reserve(
            self.handle, array, len(items), byref(reservation), byref(segments), counts, status)
        if got != OK:
            return got, None, [None] * len(items)
        rooms, at = [], 0
        for i in range(len(items)):
            room = [(segments[j].base, segments[j].bytes) for j in range(at, at + counts[i])]
            rooms.append(room if status[i] == OK else None)
            at += counts[i]
        return OK, reservation, rooms

    def commit(self, reservation, ready):
        return self.lib.kvt_put_commit(self.handle, reservation, ready, None) == OK

    def abort(self, reservation):
        self.lib.kvt_put_abort(self.handle, reservation)

    def reset(self):
        """Makes all chunks stored before unreadable from now on. False: perhaps not after a crash."""
        return self.lib.kvt_reset(self.handle) == OK

    def forget(self):
        """Empties memory and local files; shared tiers keep their chunks, so keys must differ from now on."""
        return self.lib.kvt_forget(self.handle, 0) in (OK, MISS)

    def memory_bytes(self):
        """Bytes of L1, 0 if the library does not report them."""
        found = re.search(r'^kvtier_tier_capacity_bytes\{tier="l1"\} (\d+)', self.metrics(), re.M)
        return int(found[1]) if found else 0

    def drain(self, timeout_ns):
        return self.lib.kvt_drain(self.handle, timeout_ns) == OK

    def report_prefill(self, tokens, ns):
        self.lib.kvt_report_prefill(self.handle, tokens, ns)

    def metrics(self):
        """All metrics as Prometheus text."""
        text = c_void_p()
        self._check("kvt_metrics", self.lib.kvt_metrics(self.handle, byref(text)))
        try:
            return ctypes.string_at(text.value).decode()
        finally:
            self.lib.kvt_text_free(text)

    def trace(self, most=1000):
        """Recent events of the handle, a line of JSON each, as `kvtier trace -` reads them."""
        text = c_void_p()
        self._check("kvt_trace", self.lib.kvt_trace(self.handle, most, byref(text)))
        try:
            return ctypes.string_at(text.value).decode()
        finally:
            self.lib.kvt_text_free(text)

    def events(self, most=256):
        """Changes of tiers, oldest first, and the number of events lost before them. One thread at a time."""
        out = (Event * most)()
        count = self.lib.kvt_events(self.handle, out, most)
        found, lost = [], 0
        for e in out[:count]:
            lost += e.sequence - self.last_event - 1
            self.last_event = e.sequence
            size = e.hash_bytes
            raw = ctypes.string_at(e.hashes, size * e.count) if e.count else b""
            found.append(events.Event(
                e.kind, e.tier, tuple(raw[i : i + size] for i in range(0, len(raw), size or 1)),
                ctypes.string_at(e.parent, size) if e.parent else None,
                ctypes.string_at(e.tokens, 4 * e.count * e.block_size) if e.tokens else None,
                e.block_size, e.lora_name.decode(errors="replace") if e.lora_name else None,
            ))  # fmt: skip
        return found, lost
