"""`lmcache server`, LMCache's multi-process mode, as a process of a test."""

from rig.client import ask
from rig.router import Process
from rig.wait import unused_port


class MPServer(Process):
    """One server, on ports of its own. program: the command `lmcache`; options: more of those of `lmcache server`."""

    def __init__(self, program, log, *options):
        self.port, self.http = unused_port(), unused_port()
        super().__init__([
            program, "server", "--host", "127.0.0.1", "--port", self.port, "--http-host", "127.0.0.1",
            "--http-port", self.http, "--eviction-policy", "LRU", *options,
        ], log, {"PYTHONHASHSEED": "0", "LMCACHE_TRACK_USAGE": "false", "DO_NOT_TRACK": "1"})  # fmt: skip

    def has_answered(self):
        return has_answered(self, self.http, "/health")

    def connector(self):
        """`--kv-transfer-config` of an engine that uses it; its reports then have token ids."""
        return {"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both", "kv_connector_extra_config": {
            "lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": self.port,
            "lmcache.mp.mp_transfer_mode": "lmcache_driven",
        }}  # fmt: skip


def has_answered(process, port, path):
    assert process.alive(), process.log()[-3000:]
    try:
        return ask(port, "GET", path).status < 500
    except OSError:
        return False


def reporting_to(coordinator, name):
    """Options of a server that reports to the coordinator at this port under this name."""
    return (
        "--instance-id", name, "--coordinator-url", f"http://127.0.0.1:{coordinator}",
        "--coordinator-advertise-ip", "127.0.0.1", "--coordinator-event-reporting",
    )  # fmt: skip
