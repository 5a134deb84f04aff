"""What the commands that ask a router make of an answer that is none of kvway's."""

import subprocess

import pytest

from rig.router import PROGRAM

COMMANDS = (["workers"], ["groups"], ["trace"], ["usage"], ["top", "--once"], ["explain"])
each_command = pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])


def run(worker, words):
    argv = [PROGRAM, *words, "--admin", f"127.0.0.1:{worker.port}"]
    done = subprocess.run(argv, input='{"prompt": "x"}', capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout == "", done
    assert not set(done.stderr) & set("\x1b\x07")
    return done.stderr


@each_command
def test_no_answer_of_kvway(workers, words):
    (worker,) = workers(1)
    worker.script = lambda ex: ex.respond(500, body=b"<html>\x1b[2J")
    assert f"kvway {words[0]}: what answers is no kvway with /" in run(worker, words)
    worker.script = lambda ex: ex.respond(200, body=b"<html>\x1b[2J")
    assert "status 200, <html>?[2J" in run(worker, words)


@each_command
def test_the_message_of_an_error(workers, words):
    (worker,) = workers(1)
    worker.script = lambda ex: ex.respond(503, body={"error": {"message": "not\x1b[2J\x07 now"}})
    assert f"kvway {words[0]}: not?[2J? now\n" in run(worker, words)


@each_command
def test_an_answer_that_is_too_large(workers, words):
    (worker,) = workers(1)
    piece = b"x" * (1 << 20)

    def endless(ex):
        ex.head(200, [("Transfer-Encoding", "chunked")])
        while True:
            ex.chunk(piece)

    worker.script = endless
    said = run(worker, words)
    assert said.startswith(f"kvway {words[0]}: the answer of 127.0.0.1:{worker.port} to /")
    assert said.endswith(" is above 64 MiB; ask for less\n")
