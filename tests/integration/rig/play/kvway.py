"""What is expected of kvway besides its answers: counters and gauges, log, access log, trace."""

import json
import re

from rig.play.clients import check
from rig.play.expect import Failure
from rig.play.language import verb
from rig.play.stage import wait_for
from rig.play.values import Regex, readable
from rig.client import ask


def measured(player, step, since):
    """Waits for a metric to be as expected."""
    name, labels, relation, bound = step.given
    page = ask(player.stage.router.admin_port, "GET", "/metrics").body.decode()
    if f"# TYPE {re.sub('_(bucket|sum|count)$', '', name)} " not in page and f"# TYPE {name} " not in page:
        raise Failure(f"a metric {name}", "GET /metrics names none")  # a misspelt one would be 0 for ever
    labels = [(key, player.names.fill(value)) for key, value in labels]
    last = [0.0]

    def holds():
        last[0] = value = player.stage.metric(name, labels, since)
        return {"is": value == bound, "at least": value >= bound, "at most": value <= bound}[relation]

    wait_for(holds, player.names.fill(step.text), lambda: f"{last[0]:g}" + (", since the case began" if since else ""))


@verb("kvway", "counts", "metric")
def counts(player, step):
    """By how much a counter has grown since the case began."""
    measured(player, step, True)


@verb("kvway", "shows", "metric")
def shows(player, step):
    """A gauge, as it is."""
    measured(player, step, False)


@verb("kvway", "is idle")
def idle(player, step):
    """Nothing is in flight; so it is at the end of every case."""
    router, last = player.stage.router, [{}]

    def nothing():
        last[0] = router.inflight()
        return not last[0]

    wait_for(nothing, "nothing in flight at kvway", lambda: ", ".join(f"{k} {v:g}" for k, v in last[0].items()))


def found(player, given, data):
    if isinstance(given, Regex):
        return given.compiled(player.names).search(data) is not None
    return given.bytes(player.names) in data


@verb("kvway", "logs", "text")
def logs(player, step):
    """A text, or /an expression/, stands in the log since the case began."""
    wait_for(lambda: found(player, step.given, player.stage.log()), player.names.fill(step.text),
             lambda: readable(player.stage.log()[-600:]))  # fmt: skip


@verb("kvway", "does not log", "text")
def does_not_log(player, step):
    data = player.stage.log()
    if found(player, step.given, data):
        raise Failure(player.names.fill(step.text), readable(data[-600:]))


def records_of(player, name):
    path = player.stage.access
    rows = [json.loads(row) for row in path.read_text().splitlines()] if path.exists() else []
    return [row for row in rows if row.get("request_id") == name]


@verb("kvway", "notes", "words", "record")
def notes(player, step):
    """The access log's line of the request with this id."""
    name = player.names.fill(step.given[0])
    rows = wait_for(lambda: records_of(player, name), f"a line of the access log with request_id {name}", lambda: "none")
    check(player, step, rows[-1], lambda: json.dumps(rows[-1], indent=1))


@verb("kvway", "traces", "words", "record")
def traces(player, step):
    """What GET /trace says of the request with this id when it has ended."""
    name = player.names.fill(step.given[0])

    def ended():
        answer = ask(player.stage.router.admin_port, "GET", f"/trace?id={name}")
        rows = [json.loads(row) for row in answer.body.decode().splitlines()] if answer.status == 200 else []
        return [row for row in rows if row.get("request_id") == name and "end" in row]

    rows = wait_for(ended, f"the trace of an ended request with the id {name}", lambda: "none")
    check(player, step, rows[-1], lambda: json.dumps(rows[-1], indent=1))
