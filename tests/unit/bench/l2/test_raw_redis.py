"""raw_redis and loop_stream, small: bytes go and come back; what is not there is no figure."""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time


def kept_port():
    """A bound socket that keeps its port for a server, which binds it with SO_REUSEADDR as well, and the port."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    return kept, kept.getsockname()[1]


def wait_for(port, server):
    """Until the server listens."""
    for _ in range(600):
        assert server.poll() is None, server.returncode
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("redis-server does not listen")


def redis_runs(raw, port):
    """Puts and gets of several shapes, over more connections than values, and gets of nothing."""
    def run(*args):
        return subprocess.run([raw, "-p", str(port), *map(str, args)], capture_output=True, text=True,
                              check=False, timeout=120)

    nothing = run("-r", "-c", 4096, "-k", 4, "-b", 65536)
    assert nothing.returncode == 1 and "no value" in nothing.stderr, nothing
    for size, keys, connections, depth in ((64, 3, 4, 40), (4096, 50, 1, 1), (1 << 20, 5, 3, 6)):
        shape = ["-c", size, "-k", keys, "-n", connections, "-d", depth, "-b", 8 * size * keys]
        for way in ("-w", "-r"):
            done = run(way, *shape)
            assert done.returncode == 0, done.stderr
            told = json.loads(done.stdout)
            assert told["bytes"] == 8 * size * keys and told["bytes_per_second"] > 0, told
    # Of another size than what lies there: no value's bytes may stand in another one's place.
    run("-w", "-c", 4096, "-k", 4, "-b", 65536)
    other = run("-r", "-c", 2048, "-k", 4, "-b", 65536)
    assert other.returncode == 1, other


def main(raw, stream):
    """All of it."""
    done = subprocess.run([stream, "-c", "65536", "-k", "4", "-b", "1048576"], capture_output=True,
                          text=True, check=False, timeout=120)
    assert done.returncode == 0 and json.loads(done.stdout)["bytes_per_second"] > 0, done
    if shutil.which("redis-server") is None:
        return 77
    kept, port = kept_port()
    with kept, tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                                   "--appendonly", "no", "--dir", folder], stdout=subprocess.DEVNULL)
        try:
            wait_for(port, server)
            redis_runs(raw, port)
        finally:
            server.kill()
            server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
