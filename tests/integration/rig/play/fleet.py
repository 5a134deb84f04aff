"""What workers do: `w0`, `w1` ..., `any` of them, `another` than those that have received a request since `any` did,
all as `fleet`, or a name that `as` gave to a request. A step acts on the request that its worker, or its name, received last.

`receives` waits for a request and takes it; a request that no step takes fails the case at its end. `serves` has a
worker answer by itself from there on, and `received` looks at what came.
"""

from rig.play.clients import check, until_read
from rig.play.expect import Failure
from rig.play.language import verb
from rig.play.messages import Parts, same_bytes, shown_request
from rig.play.stage import WAIT, close_of, read_late, usual, wait_for
from rig.play.values import readable
from rig.wire import Closed


def actors(player, step):
    """The workers that a step names."""
    if step.actor == "fleet":
        return list(player.stage.workers.values())
    name = player.bound[step.actor].worker if step.actor in player.bound else step.actor
    if name not in player.stage.workers:
        raise Failure(f"`{step.actor}` is a worker", "it has received nothing yet")
    return [player.stage.workers[name]]


def heard_by(player, step):
    """The request on which a step acts."""
    if step.actor not in player.bound:
        raise Failure(f"a request that {step.actor} has received", "none: `receives` comes first")
    return player.bound[step.actor]


def wanted_by(player, step):
    """(condition, words) of the request that a step waits for."""
    method, target, _ = step.given
    if step.actor == "another":
        fits = lambda heard: heard.worker not in player.seen
    elif step.actor in ("any", "fleet"):
        fits = lambda heard: True
    else:
        (actor,) = actors(player, step)
        fits = lambda heard: heard.worker == actor.name
    words = f"{step.actor} receives {player.names.fill(method or '')} {player.names.fill(target or 'a request')}"
    return fits, words


def take(player, step):
    fits, words = wanted_by(player, step)
    try:
        heard = player.stage.receive(fits, words)
    except Failure as failure:
        failure.came += "".join(client.unasked(name) for name, client in player.clients.items())
        raise
    method, target, name = step.given
    if step.actor == "any":
        player.seen = set()
    player.seen.add(heard.worker)
    player.bound[heard.worker] = player.bound[step.actor] = heard
    if name:
        player.bound[name] = heard
        player.name_worker(name, player.stage.workers[heard.worker])
    if method and (heard.ex.method, heard.ex.target) != (player.names.fill(method), player.names.fill(target)):
        raise Failure(words, shown_request(heard.ex))
    return heard


@verb("worker", "receives", "received", "request")
def receives(player, step):
    """A whole request."""
    heard = take(player, step)
    read_late(heard.ex)
    heard.go_on.set()
    check(player, step, heard.ex, lambda: shown_request(heard.ex))


@verb("worker", "receives head", "received", "request")
def receives_head(player, step):
    """A head alone. In a file with this verb, workers read a body only when a step says so."""
    heard = take(player, step)
    check(player, step, heard.ex, lambda: shown_request(heard.ex))


@verb("worker", "receives bytes", "data", "data")
def receives_bytes(player, step):
    """Exactly these, behind a head: of a body, framing included."""
    heard, wanted = heard_by(player, step), step.given.bytes(player.names)
    heard.ex.sock.settimeout(WAIT.s)
    try:
        came = heard.ex.reader.exactly(len(wanted))
    except (Closed, OSError) as error:
        raise Failure(readable(wanted), str(error)) from None
    finally:
        if not heard.ended():
            heard.ex.sock.settimeout(None)
    same_bytes(wanted, came)


@verb("worker", "receives body", "none", "request")
def receives_body(player, step):
    """The rest of a request whose head was received."""
    heard = heard_by(player, step)
    read_late(heard.ex)
    heard.go_on.set()
    check(player, step, heard.ex, lambda: shown_request(heard.ex))


@verb("worker", "receives nothing")
def receives_nothing(player, step):
    """No request until now that no step has received."""
    names = [actor.name for actor in actors(player, step)]
    waiting = [heard for heard in player.stage.waiting if heard.worker in names]
    if waiting:
        raise Failure(f"{step.actor} receives nothing", shown_request(waiting[0].ex))


@verb("worker", "received", "number", "request")
def received(player, step):
    """So many requests since the case began; what stands below is expected of the last."""
    came = sum(actor.count for actor in actors(player, step))
    last = [ex for actor in actors(player, step) for ex in actor.rig.requests][-1:]
    if came != step.given:
        raise Failure(f"{step.actor} received {step.given} requests", f"{came}" + "".join(f"; last {shown_request(ex)}" for ex in last))
    if step.below and not last:
        raise Failure("a request to look at", "none")
    for ex in last:
        check(player, step, ex, lambda ex=ex: shown_request(ex))


@verb("worker", "is left")
def is_left(player, step):
    """kvway closes the connection."""
    heard = heard_by(player, step)
    wait_for(heard.ended, f"kvway to close the connection of {step.actor}", lambda: "it is open")


# --- answers ---


def send(player, step, data):
    heard = heard_by(player, step)
    try:
        heard.ex.send(data)
    except (Closed, OSError) as error:
        why = "kvway has closed the connection" if heard.ended() else str(error)
        raise Failure(f"{step.actor} sends {readable(data, 200)}", why) from None


def chunk_of(data):
    return b"%x\r\n" % len(data) + data + b"\r\n"


@verb("worker", "answers", "answered", "message")
def answers(player, step):
    """A whole answer; without a status, the usual one: OpenAI's shape with the worker's name, streamed if asked for."""
    ex = heard_by(player, step).ex
    if step.given is None and not step.below:
        try:
            usual(ex)
        except Closed as error:
            raise Failure(step.text, str(error)) from None
        return
    status, reason = step.given or ("200", "OK")
    status = player.names.fill(status)
    parts = Parts(step.below, player.names)
    send(player, step, parts.answer(status, player.names.fill(reason or "OK"), ex.method))


@verb("worker", "begins", "answered", "message")
def begins(player, step):
    """The head of an answer alone, as its headers stand below; without a status, that of an event stream in chunks."""
    status, reason = step.given or ("200", "OK")
    parts = Parts(step.below, player.names)
    headers = list(parts.headers)
    if step.given is None:
        headers += [("content-type", "text/event-stream; charset=utf-8"), ("transfer-encoding", "chunked")]
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    send(player, step, f"HTTP/1.1 {player.names.fill(status)} {reason or 'OK'}\r\n{lines}\r\n".encode("latin-1"))


@verb("worker", "sends", "data", "data")
def sends(player, step):
    send(player, step, step.given.bytes(player.names))


@verb("worker", "sends bytewise", "data", "data")
def sends_bytewise(player, step):
    """Each byte when kvway has read the one before."""
    for byte in step.given.bytes(player.names):
        send(player, step, bytes([byte]))
        until_read(heard_by(player, step).ex.sock)


@verb("worker", "sends chunk", "data", "data")
def sends_chunk(player, step):
    send(player, step, chunk_of(step.given.bytes(player.names)))


@verb("worker", "sends event", "event")
def sends_event(player, step):
    send(player, step, chunk_of(b"data: " + step.given.bytes(player.names) + b"\n\n"))


@verb("worker", "keeps sending", "data", "data")
def keeps_sending(player, step):
    """A chunk, again and again until kvway closes the connection."""
    heard, chunk = heard_by(player, step), chunk_of(step.given.bytes(player.names))

    def left():
        try:
            heard.ex.send(chunk)
        except (Closed, OSError):
            pass  # by kvway, which the connection's thread notices, too
        return heard.ended()

    wait_for(left, f"kvway to close the connection of {step.actor}", lambda: "it is open")


@verb("worker", "ends")
def ends(player, step):
    """The last chunk."""
    send(player, step, b"0\r\n\r\n")


@verb("worker", "waits")
def waits(player, step):
    """Until kvway has read all that was sent."""
    heard = heard_by(player, step)
    if not heard.ended():
        until_read(heard.ex.sock)


@verb("worker", "closes")
def closes(player, step):
    close_of(heard_by(player, step), reset=False)


@verb("worker", "resets")
def resets(player, step):
    close_of(heard_by(player, step), reset=True)


# --- workers as such ---


@verb("worker", "serves", "answered", "message")
def serves(player, step):
    """Answers each request by itself from now on; the parts are as of `answers`."""
    if step.given is None and not step.below:
        script = usual
    else:
        status, reason = step.given or ("200", "OK")
        status, reason = player.names.fill(status), player.names.fill(reason or "OK")
        parts = Parts(step.below, player.names)

        def script(ex):
            ex.read_body()
            ex.send(parts.answer(status, reason, ex.method))

    for actor in actors(player, step):
        actor.serve = script


@verb("worker", "breaks resetting")
def breaks_resetting(player, step):
    """Resets the connection of each request by itself from now on."""
    for actor in actors(player, step):
        actor.serve = lambda ex: ex.reset()


@verb("worker", "breaks closing")
def breaks_closing(player, step):
    for actor in actors(player, step):
        actor.serve = lambda ex: ex.close()


@verb("worker", "stops")
def stops(player, step):
    """As a killed process: open connections are closed, new ones refused."""
    for actor in actors(player, step):
        actor.rig.stop()


@verb("worker", "listens")
def listens(player, step):
    """Again, on the same port."""
    for actor in actors(player, step):
        actor.rig.start()


@verb("worker", "cuts")
def cuts(player, step):
    """Closes all connections that are open, idle ones too."""
    for actor in actors(player, step):
        actor.rig.cut()


@verb("worker", "is ill")
def is_ill(player, step):
    """GET /health says 503."""
    for actor in actors(player, step):
        actor.rig.healthy = False


@verb("worker", "is well")
def is_well(player, step):
    for actor in actors(player, step):
        actor.rig.healthy = True


@verb("worker", "lists", "words")
def lists(player, step):
    """The models that GET /v1/models says."""
    for actor in actors(player, step):
        actor.rig.models = [player.names.fill(word) for word in step.given]


@verb("worker", "reports", "none", "lines")
def reports(player, step):
    """The lines that GET /metrics says."""
    for actor in actors(player, step):
        actor.rig.metrics = "".join(line.bytes(player.names).decode() + "\n" for line in step.below)
