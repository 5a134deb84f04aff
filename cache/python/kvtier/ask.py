"""Questions of the scheduler to the ranks about the chunks of a chain that they hold.

The scheduler and the ranks may live in different processes, so each rank listens on a Unix socket in a folder that only
this user can enter. A question is a number and chunk names; an answer is the number and the count of chunks, from the
first on, that the rank can return. The scheduler never waits: it sends questions, and later reads the answers that have
arrived. The least of all ranks' answers counts. The epoch counts resets: a rank that receives a newer epoch than its
own forgets everything before it answers.

	question: u64 number, u64 time to answer in ns, u32 epoch, u32 count, 16 bytes of tenant, u32 ends, count * 32 bytes
	          of names
	answer:   u64 number, u32 count, u32 tier of the last one

Question 0 is a subscription: from then on the rank sends the cache's events (events.py) on that connection.
"""

import contextlib
import hashlib
import math
import os
import select
import selectors
import socket
import stat
import struct
import tempfile
import time

QUESTION = struct.Struct("<QQII16sI")
ANSWER = struct.Struct("<QII")
NAME_BYTES = 32
MOST_NAMES = 65536
MOST_WAITING = 4 << 20  # most bytes that a rank has not read yet
MOST_OPEN = 65536  # most open questions; a further one drops the oldest, which becomes a miss
NO_TENANT = bytes(16)
LISTEN = QUESTION.pack(0, 0, 0, 0, NO_TENANT, 0)


class Foreign(OSError):
    """The folder of the sockets cannot be used; the text names it."""


def own_folder():
    """Makes the folder of this user's sockets, in a folder that all users write to."""
    folder = os.path.join(tempfile.gettempdir(), f"kvtier-{os.geteuid()}")
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        state = os.lstat(folder)
    except OSError as error:
        raise Foreign(f"{folder}: {error.strerror}") from error
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid():
        raise Foreign(f"{folder} is no folder of this user's (uid {state.st_uid}): remove it, or set TMPDIR")
    if state.st_mode & 0o077:
        raise Foreign(f"{folder} is open to other users (mode {state.st_mode & 0o777:o}): chmod go= it")
    return folder


def socket_path(engine_id, rank):
    """Path of the socket on which a rank of an engine listens."""
    folder = own_folder()
    name = hashlib.sha256(str(engine_id).encode()).hexdigest()[:24]  # a socket's path must be short
    return os.path.join(folder, f"{name}-{rank}.sock")


def wait_readable(files, limit_s):
    """Those of the sockets and descriptors that can be read within limit_s; None: no limit."""
    poll, known = select.poll(), {}
    for file in files:
        number = file if isinstance(file, int) else file.fileno()
        known[number] = file
        poll.register(number, select.POLLIN)
    ready = poll.poll(None if limit_s is None else math.ceil(limit_s * 1000))
    return [known[number] for number, _ in ready]


class Rank:
    """The scheduler's connection to a rank; connects once the rank is there."""

    RETRY_S = 1.0

    def __init__(self, path):
        self.path = path
        self.socket = None
        self.out = b""
        self.inbox = b""
        self.next_try = 0.0

    def connected(self):
        if self.socket is not None:
            return True
        if time.monotonic() < self.next_try:
            return False
        self.next_try = time.monotonic() + self.RETRY_S
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)  # retries with a rank that has no room for a connection
        try:
            sock.connect(self.path)
        except OSError:
            sock.close()
            return False
        self.socket = sock
        return True

    def lose(self):
        if self.socket is not None:
            self.socket.close()
        self.socket = None
        self.out = self.inbox = b""

    def send(self, message):
        if not self.connected() or len(self.out) > MOST_WAITING:
            return False
        self.out += message
        self.flush()
        return self.socket is not None

    def flush(self):
        while self.out and self.socket is not None:
            try:
                self.out = self.out[self.socket.send(self.out) :]
            except BlockingIOError:
                return
            except OSError:
                self.lose()

    def answers(self):
        """[(number, count, tier)] that have arrived. None: the rank is gone."""
        if self.socket is None:
            return None
        self.flush()
        while self.socket is not None:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.lose()
                return None
            self.inbox += data
        whole = len(self.inbox) // ANSWER.size * ANSWER.size
        found = list(ANSWER.iter_unpack(self.inbox[:whole]))
        self.inbox = self.inbox[whole:]
        return found


class Asker:
    """The scheduler's side. One thread."""

    def __init__(self, paths, deadline_s):
        self.ranks = [Rank(path) for path in paths]
        self.deadline_s = deadline_s
        self.number = 0
        self.epoch = 0
        self.open = {}  # number -> [until, {rank: (count, tier)}]

    def ask(self, names, tenant=NO_TENANT, ends=0):
        """Number of the question, or None: not all ranks can be asked. ends: the answer is a count after whose last
        chunk the windows of the last `ends` chunks are there, too (groups.py)."""
        names = names[:MOST_NAMES]
        self.number += 1
        head = QUESTION.pack(self.number, int(self.deadline_s * 1e9), self.epoch, len(names), tenant, ends)
        message = head + b"".join(names)
        self._drop_late()
        self.open[self.number] = [time.monotonic() + self.deadline_s, {}]
        if not all([rank.send(message) for rank in self.ranks]):
            del self.open[self.number]
            return None
        return self.number

    def _drop_late(self):
        """Drops questions whose time is over and whose answer was never read; they are ordered by time."""
        now = time.monotonic()
        while self.open:
            number, (until, _) = next(iter(self.open.items()))
            if until > now and len(self.open) < MOST_OPEN:
                return
            del self.open[number]

    def answer(self, number, wait_s=0.0):
        """(count, tier) once all ranks have answered or the time is over; None: not yet. Waits up to wait_s."""
        self._read()
        if wait_s > 0:
            self._wait(number, time.monotonic() + wait_s)
        state = self.open.get(number)
        if state is None:
            return 0, 255
        until, answers = state
        if len(answers) == len(self.ranks):
            del self.open[number]
            return min(answers.values())
        if time.monotonic() < until:
            return None
        del self.open[number]
        return 0, 255

    def _wait(self, number, until):
        while (state := self.open.get(number)) is not None and len(state[1]) < len(self.ranks):
            left_s = math.floor((until - time.monotonic()) * 1000) / 1000  # never longer than the given time
            if left_s <= 0 or not wait_readable([r.socket for r in self.ranks if r.socket is not None], left_s):
                return
            self._read()

    def reset(self):
        """Makes the ranks forget everything that they hold."""
        self.epoch += 1
        self.open.clear()
        self.forget(self.ask([]))

    def forget(self, number):
        self.open.pop(number, None)

    def _read(self):
        for index, rank in enumerate(self.ranks):
            answers = rank.answers()
            if answers is None:
                self.open.clear()  # answer() reports "nothing found" for these questions
                continue
            for number, count, tier in answers:
                if number in self.open:
                    self.open[number][1][index] = (count, tier)

    def close(self):
        for rank in self.ranks:
            rank.lose()


class Client:
    """A rank's connection to one scheduler."""

    def __init__(self, sock):
        self.socket = sock
        self.inbox = b""
        self.out = b""
        self.listening = False  # wants events

    def questions(self):
        """[(number, time in ns, epoch, tenant, names, ends)], or None: the scheduler is gone or sent something else."""
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        self.inbox += data
        found = []
        while len(self.inbox) >= QUESTION.size:
            number, limit_ns, epoch, count, tenant, ends = QUESTION.unpack_from(self.inbox)
            if count > MOST_NAMES:
                return None
            end = QUESTION.size + count * NAME_BYTES
            if len(self.inbox) < end:
                break
            raw = self.inbox[QUESTION.size : end]
            self.inbox = self.inbox[end:]
            if number == 0:
                self.listening = True
                continue
            names = [raw[i : i + NAME_BYTES] for i in range(0, len(raw), NAME_BYTES)]
            found.append((number, limit_ns, epoch, tenant, names, ends))
        return found

    def answer(self, number, count, tier):
        """Sends an answer. False: the scheduler does not read, and its connection is to be dropped."""
        return self.send(ANSWER.pack(number, count, tier))

    def send(self, message):
        """Sends a message. False: the scheduler does not read, and its connection is to be dropped."""
        self.out += message
        return self.flush() and len(self.out) < MOST_WAITING

    def flush(self):
        while self.out:
            try:
                self.out = self.out[self.socket.send(self.out) :]
            except BlockingIOError:
                return True
            except OSError:
                return False
        return True


class Listener:
    """A rank's side: the socket and its clients, which one thread serves through a selector."""

    def __init__(self, path, selector):
        self.path = path
        self.selector = selector
        if os.path.exists(path):
            os.unlink(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(path)
        self.socket.listen(4)
        self.socket.setblocking(False)
        self.clients = {}
        selector.register(self.socket, selectors.EVENT_READ, self)

    def accept(self):
        try:
            sock, _ = self.socket.accept()
        except OSError:
            return
        sock.setblocking(False)
        client = Client(sock)
        self.clients[sock] = client
        self.selector.register(sock, selectors.EVENT_READ, client)

    def drop(self, client):
        if self.clients.pop(client.socket, None) is not None:
            self.selector.unregister(client.socket)
            client.socket.close()

    def close(self):
        for client in list(self.clients.values()):
            self.drop(client)
        self.selector.unregister(self.socket)
        self.socket.close()
        if os.path.exists(self.path):
            os.unlink(self.path)
