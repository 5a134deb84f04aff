"""What clients do: `client`, `client2` ... speak to kvway, `admin` to its admin address. Each has one connection.

A client connects when it first sends; after that, only `connects` makes a new connection, so that a file shows which
requests share one.
"""

import select
import socket
import threading
import time

from rig.play.expect import Failure, Message
from rig.play.kernel import unread
from rig.play.language import verb
from rig.play.messages import PATHS, Parts, same_bytes, shown_answer
from rig.play.stage import WAIT, wait_for
from rig.play.values import readable
from rig.client import ADMIN, Client, Response
from rig.wait import PATIENCE
from rig.wire import Closed, Reader, parse_head


class BoundedReader(Reader):
    """Reads until a moment, so that a stream of which something always comes does not keep a step waiting for ever."""

    ends = 0.0

    def fill(self):
        if time.monotonic() > self.ends:
            raise TimeoutError
        return super().fill()


class Connection:
    """A client, what it has asked on its connection, and the answer it is reading."""

    def __init__(self, port):
        self.client = Client(port, timeout=WAIT.s / PATIENCE)
        self.client.reader = BoundedReader(self.client.sock)
        self.methods = []  # of requests whose answers have not come
        self.answer = None  # whose head was read, not its end
        self.stream = b""  # of it, in which no whole event was
        self.sender = None

    def send(self, data):
        """Large data goes from a thread, so that a file may have its worker read it in a later step."""
        self.flush()
        if len(data) < 100_000:
            self.client.send(data)
            return
        self.sender = threading.Thread(target=self._push, args=(data,), daemon=True)
        self.sender.start()

    def _push(self, data):
        try:
            self.client.send(data)
        except OSError:
            pass  # kvway's answer shows why

    def flush(self):
        if self.sender:
            self.sender.join(WAIT.s)
            self.sender = None

    def close(self):
        self.client.close()

    def method(self):
        return self.methods[0] if self.methods else "GET"

    def unasked(self, name):
        """What has come that no step has read, in words, or nothing."""
        try:
            readable_now = select.select([self.client.sock], [], [], 0)[0]  # MSG_DONTWAIT alone waits for the socket's timeout
            waiting = self.client.sock.recv(300, socket.MSG_PEEK) if readable_now else None
        except OSError as error:
            return f"\nmeanwhile the connection of {name} ended: {error}"
        came = bytes(self.client.reader.buffer) + (waiting or b"")
        if came:
            return f"\nmeanwhile {name} received\n{readable(came)}"
        return "" if waiting is None else f"\nmeanwhile kvway closed the connection of {name}"


def connection(player, name):
    if name not in player.clients:
        player.clients[name] = Connection(player.stage.router.admin_port if name == "admin" else player.stage.router.port)
    return player.clients[name]


def open_connection(player, step):
    if step.actor not in player.clients:
        raise Failure(f"{step.actor} has a connection", "it has sent nothing yet")
    one = player.clients[step.actor]
    one.client.sock.settimeout(WAIT.s)
    one.client.reader.ends = time.monotonic() + WAIT.s
    return one


@verb("client", "connects")
def connects(player, step):
    if step.actor in player.clients:
        player.clients.pop(step.actor).close()
    connection(player, step.actor)


def head_of(player, step, whole):
    method, target, version, short = step.given
    method = player.names.fill(method)
    parts = Parts(step.below, player.names, short)
    target = PATHS[short] if short else player.names.fill(target)
    if step.actor == "admin" and method == "POST" and ADMIN.match(target) and not parts.has("content-type"):
        parts.headers.append(("X-Requested-With", "tests"))  # the admin address refuses what a web page could send
    return method, parts.request(method, target, version, whole)


@verb("client", "asks", "request", "message")
def asks(player, step):
    """A whole request."""
    method, data = head_of(player, step, True)
    one = connection(player, step.actor)
    one.methods.append(method)
    one.send(data)


@verb("client", "begins", "request", "message")
def begins(player, step):
    """The head of a request alone, with the headers below."""
    method, data = head_of(player, step, False)
    one = connection(player, step.actor)
    one.methods.append(method)
    one.send(data)


@verb("client", "sends", "data", "data")
def sends(player, step):
    data = step.given.bytes(player.names)
    one = connection(player, step.actor)
    if data.startswith(b"HEAD "):
        one.methods.append("HEAD")
    one.send(data)


@verb("client", "sends bytewise", "data", "data")
def sends_bytewise(player, step):
    """Each byte when kvway has read the one before."""
    one = connection(player, step.actor)
    for byte in step.given.bytes(player.names):
        one.send(bytes([byte]))
        until_read(one.client.sock)


def until_read(sock):
    wait_for(lambda: not unread(sock), "kvway to read all that was sent", lambda: "it has not")


@verb("client", "waits")
def waits(player, step):
    """Until kvway has read all that was sent."""
    one = open_connection(player, step)
    one.flush()
    until_read(one.client.sock)


@verb("client", "finishes")
def finishes(player, step):
    """FIN: no more is sent, answers are still read."""
    one = open_connection(player, step)
    one.flush()
    one.client.finish_sending()


@verb("client", "closes")
def closes(player, step):
    open_connection(player, step).close()
    player.clients.pop(step.actor)


@verb("client", "resets")
def resets(player, step):
    open_connection(player, step).client.reset()
    player.clients.pop(step.actor)


# --- what comes ---


def read_head(one, expected):
    """The next head, 1xx too."""
    try:
        head = one.client.reader.until(b"\r\n\r\n")
    except (Closed, OSError) as error:
        raise Failure(expected, came_instead(one, error)) from None
    if head is None:
        raise Failure(expected, "the end of the connection")
    answer = Response()
    first, answer.headers = parse_head(head)
    answer.version, status, answer.reason = (first.split(" ", 2) + [""])[:3]
    answer.status = int(status)
    return answer


def came_instead(one, error):
    if isinstance(error, (TimeoutError, socket.timeout)):
        buffered = bytes(one.client.reader.buffer)
        return f"nothing more, for {WAIT.s:g} s" + (f", after\n{readable(buffered)}" if buffered else "")
    return str(error)


def answer_head(one, expected):
    """The head of the final answer, with the 1xx ones before it."""
    interim = []
    while True:
        answer = read_head(one, expected)
        if answer.status >= 200 or answer.status == 101:
            answer.interim = interim
            return answer
        interim.append((answer.status, answer.headers))


def check_status(player, step, answer):
    wanted = player.names.fill(step.given)
    if str(answer.status) not in wanted.split("|"):
        raise Failure(f"status {wanted}", shown_answer(answer))


def check(player, step, found, shown):
    message = Message(found, shown)
    for expectation in step.below:
        try:
            expectation.check(message, player.names)
        except Failure as failure:
            failure.line = expectation.line
            raise


@verb("client", "receives", "statuses", "response")
def receives(player, step):
    """A whole answer."""
    one = open_connection(player, step)
    answer = answer_head(one, f"an answer with status {player.names.fill(step.given)}")
    try:
        one.client.read_body(answer, one.method())
    except (Closed, OSError) as error:
        answer.body = getattr(error, "partial", b"")
        raise Failure("the end of this answer's body", f"{came_instead(one, error)}\nof:\n{shown_answer(answer)}") from None
    except AssertionError as error:
        raise Failure("a body in chunks", f"{error}\nof:\n{shown_answer(answer)}") from None
    one.methods[:1] = []
    check_status(player, step, answer)
    check(player, step, answer, lambda: shown_answer(answer))


@verb("client", "receives head", "statuses", "response")
def receives_head(player, step):
    """A head; of a final answer, the steps after it receive the body."""
    one = open_connection(player, step)
    answer = read_head(one, f"a head with status {player.names.fill(step.given)}")
    one.answer, one.stream = (answer if answer.status >= 200 else None), b""
    check_status(player, step, answer)
    check(player, step, answer, lambda: shown_answer(answer))


def answer_under_way(one):
    if one.answer is None:
        raise Failure("an answer whose head was received", "none: `receives head` comes first")
    return one.answer


def next_chunk(one, expected):
    answer_under_way(one)
    try:
        return one.client.reader.chunk()
    except (Closed, OSError) as error:
        raise Failure(expected, came_instead(one, error)) from None


@verb("client", "receives chunk", "data", "data")
def receives_chunk(player, step):
    wanted = step.given.bytes(player.names)
    same_bytes(wanted, next_chunk(open_connection(player, step), readable(wanted)))


@verb("client", "receives event", "event")
def receives_event(player, step):
    """The next event of a stream, however it is cut into chunks; comments before it are passed over."""
    one = open_connection(player, step)
    wanted = b"data: " + step.given.bytes(player.names)
    while True:
        event, end, one.stream = one.stream.partition(b"\n\n")
        if end and not event.startswith(b":"):
            break
        if end:
            continue
        piece = next_chunk(one, readable(wanted))
        if not piece:
            raise Failure(readable(wanted), "the end of the stream")
        one.stream = event + piece
    same_bytes(wanted, event)


@verb("client", "receives bytes", "data", "data")
def receives_bytes(player, step):
    """Exactly these, of whatever comes next."""
    wanted, one = step.given.bytes(player.names), open_connection(player, step)
    try:
        came = one.client.reader.exactly(len(wanted))
    except (Closed, OSError) as error:
        raise Failure(readable(wanted), came_instead(one, error)) from None
    same_bytes(wanted, came)


@verb("client", "receives rest", "none", "response")
def receives_rest(player, step):
    """The body of the answer whose head was received, from here to its end."""
    one = open_connection(player, step)
    answer = answer_under_way(one)
    try:
        one.client.read_body(answer, one.method())
    except (Closed, OSError) as error:
        answer.body = getattr(error, "partial", b"")
        raise Failure("the end of this answer's body", f"{came_instead(one, error)}\nof:\n{shown_answer(answer)}") from None
    answer.body, one.answer = one.stream + answer.body, None
    one.methods[:1] = []
    check(player, step, answer, lambda: shown_answer(answer))


@verb("client", "is cut", "none", "response")
def is_cut(player, step):
    """The answer, from its head or from where it is, ends before its end. `body` is what came of it."""
    one = open_connection(player, step)
    answer = one.answer or answer_head(one, "a head, and an answer that is cut")
    try:
        one.client.read_body(answer, one.method())
    except (TimeoutError, socket.timeout) as error:
        raise Failure("the answer cut", came_instead(one, error)) from None
    except (Closed, OSError) as error:
        answer.body = one.stream + getattr(error, "partial", b"")
        check(player, step, answer, lambda: shown_answer(answer))
        return
    raise Failure("the answer cut before its end", shown_answer(answer))


@verb("client", "is closed")
def is_closed(player, step):
    """kvway closes the connection, and sends nothing before."""
    one = open_connection(player, step)
    one.flush()
    one.client.sock.settimeout(WAIT.s)
    buffered = bytes(one.client.reader.buffer)
    try:
        came = buffered or one.client.sock.recv(65536)
    except (TimeoutError, socket.timeout):
        raise Failure("the connection closed by kvway", f"it is open, after {WAIT.s:g} s") from None
    except OSError:
        came = b""
    if came:
        raise Failure("the connection closed by kvway", readable(came))
