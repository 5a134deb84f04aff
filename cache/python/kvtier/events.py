"""Carries events of the ranks' tiers to the engine's own KV events.

A rank's thread takes events out of its cache and writes them to every subscriber of its socket (ask.py); in the
scheduler's process a thread reads from all ranks. With several ranks a chunk is useful only if all hold their parts: it
counts as stored when the last rank has stored its part, and as removed when the first rank has lost its own.

The engine publishes events with its steps. An idle engine takes no steps, so events that happen then (a chunk reaches
the disk a second after the last request; a store is found warm at the start) would wait for the next request. The
callback `on_waiting` may wake the engine to publish them.

	frame: u32 bytes that follow, then u8 kind, u8 tier, u8 bytes of a hash, u8 flags, u32 blocks, u32 tokens of
	       a block, u32 bytes of the adapter's name; hashes; parent, tokens as u32, adapter's name where flagged
"""

import collections
import os
import socket
import struct
import threading
import time
from typing import NamedTuple

from .ask import wait_readable

LENGTH = struct.Struct("<I")
HEAD = struct.Struct("<BBBBIII")
HAS_PARENT, HAS_TOKENS, HAS_LORA = 1, 2, 4
STORED, REMOVED, CLEARED = 1, 2, 3
MOST_BYTES = 16 << 20  # most bytes of a frame
MOST_WAITING = 16384  # events that the engine has not taken; beyond, ranks are not read
MOST_TAKEN = 1024  # most events taken at once


class Event(NamedTuple):
    """A change of a tier's contents, under the engine's names."""

    kind: int
    tier: int
    hashes: tuple  # of the blocks, in order, as bytes
    parent: bytes | None = None  # hash of the block before
    tokens: bytes | None = None  # u32 each, in the machine's order; None: the cache does not report them
    block_size: int = 0
    lora: str | None = None


def pack(event):
    """Makes a frame."""
    hash_bytes = len(event.hashes[0]) if event.hashes else 0
    lora = (event.lora or "").encode()
    flags = HAS_PARENT * (event.parent is not None) | HAS_TOKENS * (event.tokens is not None)
    flags |= HAS_LORA * (event.lora is not None)
    body = HEAD.pack(
        event.kind, event.tier, hash_bytes, flags, len(event.hashes), event.block_size, len(lora)
    ) + b"".join((*event.hashes, event.parent or b"", event.tokens or b"", lora))  # fmt: skip
    return LENGTH.pack(len(body)) + body


def unpack(body):
    """Reads an event from the bytes after a frame's length; ValueError: not an event."""
    try:
        kind, tier, size, flags, count, block_size, lora_bytes = HEAD.unpack_from(body)
    except struct.error as error:
        raise ValueError(str(error)) from error
    at = HEAD.size

    def take(length):
        nonlocal at
        piece = body[at : at + length]
        if len(piece) != length:
            raise ValueError("an event that is cut")
        at += length
        return piece

    raw = take(size * count)
    parent = take(size) if flags & HAS_PARENT else None
    tokens = take(4 * count * block_size) if flags & HAS_TOKENS else None
    lora = take(lora_bytes).decode(errors="replace") if flags & HAS_LORA else None
    if at != len(body) or (count > 0 and size == 0):
        raise ValueError("an event of another length")
    hashes = tuple(raw[i : i + size] for i in range(0, len(raw), size)) if size else ()
    return Event(kind, tier, hashes, parent, tokens, block_size, lora)


class Reporter:
    """A rank's side: sends its cache's events to the subscribers of its socket. One thread."""

    MOST_UNREAD = 1 << 18  # unread bytes of a subscriber; beyond, no more events are taken

    def __init__(self, cache, listener):
        self.cache, self.listener = cache, listener

    def listeners(self):
        return [client for client in self.listener.clients.values() if client.listening]

    def report(self, count):
        """Sends new events. While a subscriber reads slowly, events stay in the cache's own queue. count(name, n): adds
        to a counter."""
        listeners = self.listeners()
        for client in listeners:
            if not client.flush():
                self.listener.drop(client)
        if not listeners or any(len(client.out) > self.MOST_UNREAD for client in listeners):
            return
        found, lost = self.cache.events()
        count("lost_events", lost)
        count("events", len(found))
        message = b"".join(pack(event) for event in found)
        for client in listeners:
            if message and not client.send(message):
                self.listener.drop(client)


class Merged:
    """Joins events of several ranks into those of the whole engine. Remembers, per tier, chunks that some rank
    holds."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.all = (1 << ranks) - 1
        self.held = {}  # (tier, hash of the last block) -> ranks as bits

    def add(self, rank, event):
        """The event to publish, or None."""
        if self.ranks == 1 or not event.hashes:
            return event
        name, bit = (event.tier, event.hashes[-1]), 1 << rank
        before = self.held.get(name, 0)
        after = before | bit if event.kind == STORED else before & ~bit
        if after:
            self.held[name] = after
        else:
            self.held.pop(name, None)
        if event.kind == STORED:
            return event if after == self.all and before != self.all else None
        return event if before == self.all and after != self.all else None

    def lost(self, rank):
        """Called when a rank's connection is gone. Its engine ends with it, so no events are published for its
        chunks."""
        bit = 1 << rank
        self.held = {name: left for name, ranks in self.held.items() if (left := ranks & ~bit)}


class Subscriber:
    """The scheduler's side: one thread that reads from all ranks."""

    RETRY_S = 1.0
    GATHER_S = 0.05  # how long to collect events before the engine is woken
    AGAIN_S = 0.2  # time between two calls of on_waiting while events wait

    def __init__(self, paths, hello, log, on_waiting=None):
        """hello: the message that subscribes to a rank's events."""
        self.paths, self.hello, self.log = paths, hello, log
        self.on_waiting = on_waiting or (lambda: None)
        self.waiting = collections.deque()  # appended by the thread, taken by the engine's
        # of the thread alone
        self.merged = Merged(len(paths))
        self.sockets = {}  # rank -> (socket, received part of a frame)
        self.wake_at = 0.0
        self.stop_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.thread = threading.Thread(target=self._main, name="kvtier-events", daemon=True)
        self.thread.start()

    def take(self):
        """The oldest events, some at a time."""
        return [self.waiting.popleft() for _ in range(min(len(self.waiting), MOST_TAKEN))]

    def has_some(self):
        return len(self.waiting) > 0

    def close(self):
        os.eventfd_write(self.stop_fd, 1)
        self.thread.join(5)

    # --- its own thread ---

    def _main(self):
        try:
            while self._turn():
                pass
        except Exception as error:  # the engine goes on without events
            self.log.exception("kvtier: the thread for events ended: %s", error)
        finally:
            for sock, _ in self.sockets.values():
                sock.close()
            os.close(self.stop_fd)

    def _turn(self):
        for rank in range(len(self.paths)):
            if rank not in self.sockets:
                self._connect(rank)
        full = len(self.waiting) > MOST_WAITING
        reading = {} if full else {sock: rank for rank, (sock, _) in self.sockets.items()}
        ready = wait_readable([self.stop_fd, *reading], self._patience_s())
        if self.stop_fd in ready:
            return False
        for sock in ready:
            self._read(reading[sock], sock)
        if self.has_some() and time.monotonic() >= self.wake_at:
            self.wake_at = time.monotonic() + self.AGAIN_S
            self.on_waiting()
        return True

    def _patience_s(self):
        if self.has_some():
            return max(0.0, self.wake_at - time.monotonic())
        return self.RETRY_S if len(self.sockets) < len(self.paths) else None

    def _connect(self, rank):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(self.paths[rank])
            sock.sendall(self.hello)
        except OSError:
            sock.close()
            return
        self.sockets[rank] = (sock, bytearray())

    def _read(self, rank, sock):
        inbox = self.sockets[rank][1]
        try:
            data = sock.recv(1 << 18)
            if not data:
                raise ValueError("gone")
            inbox += data
            self._take_frames(rank, inbox)
        except (OSError, ValueError):
            sock.close()
            del self.sockets[rank]
            self.merged.lost(rank)

    def _take_frames(self, rank, inbox):
        found, at = [], 0
        while len(inbox) - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(inbox, at)
            if length > MOST_BYTES:
                raise ValueError("an event that is too long")
            end = at + LENGTH.size + length
            if len(inbox) < end:
                break
            event = self.merged.add(rank, unpack(bytes(inbox[at + LENGTH.size : end])))
            if event is not None:
                found.append(event)
            at = end
        del inbox[:at]
        self._append(found)

    def _append(self, found):
        if found and not self.has_some():
            self.wake_at = time.monotonic() + self.GATHER_S
        self.waiting.extend(found)
