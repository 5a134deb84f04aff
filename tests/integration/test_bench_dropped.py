"""`bench/run.sh fleet-change` counts requests at its clients: what is not answered whole was dropped."""

import pathlib
import subprocess
import sys

import pytest
from rig.wait import until, unused_port

BENCH = pathlib.Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def change():
    """The module under test."""
    sys.path.insert(0, str(BENCH))
    import lib_fleet_change
    yield lib_fleet_change
    sys.path.remove(str(BENCH))


def ends_of(change, out, port, until_what):
    """Four clients at this port until something holds: what became of their requests."""
    argv = [sys.executable, BENCH / "lib_fleet_clients.py", str(port), "4", "20"]
    with open(out, "wb") as file:
        clients = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=file)
        until(until_what, 30, "enough requests")
        clients.stdin.close()
        assert clients.wait(60) == 0
    return change.read_ends(out)


def test_what_is_not_answered_whole_is_dropped(change, workers, tmp_path):
    counts = {"ok": 0, "lost": 0, "cut": 0, "503": 0}

    def some(ex):
        ex.read_body()
        with worker.lock:
            what = list(counts)[sum(counts.values()) % len(counts)]
            counts[what] += 1
        if what == "lost":
            ex.close()
        elif what == "503":
            ex.respond(503, body={"error": "no"})
        else:
            ex.start_stream()
            ex.event({"choices": []})
            if what == "ok":
                ex.event("[DONE]")
                ex.end_stream()
            else:
                ex.close()

    (worker,) = workers(1, read_body=False)
    worker.script = some
    sent, answered, others = ends_of(change, tmp_path / "out", worker.port, lambda: all(n > 2 for n in counts.values()))
    assert len(answered) == counts.pop("ok") and others == counts
    assert sent == len(answered) + sum(counts.values())
    assert all(ms > 0 for _, ms in answered)


def test_a_refused_connection_is_a_dropped_request(change):
    import lib_fleet_clients

    crowd = lib_fleet_clients.Crowd(unused_port(), 2, 1)
    until(lambda: crowd.turn(False) or len(crowd.done) > 3, 30, "some requests")
    assert {what for _, _, what in crowd.done} == {"refused"}
    assert sum(client.sent for client in crowd.clients) == len(crowd.done)


def test_clients_that_wrote_too_little_are_noticed(change, tmp_path):
    (tmp_path / "out").write_text("3\n1000000000 2000 ok\n2000000000 -1 502\n")
    assert change.read_ends(tmp_path / "out") == (3, [(1.0, 2.0)], {"502": 1, "unended": 1})
