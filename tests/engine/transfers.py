"""Ways by which the KV of a prompt gets from one real engine to another, for pd.py: connectors of vLLM, and what they
share."""

import json
import subprocess
import uuid

from connected import LIBRARY, PACKAGE, of_size, through
from differential import install
from mp_server import MPServer
from rig.kvtierd import Kvtierd
from rig.wait import until
from server import HERE, VENV

DECODER_WAITS = ("hold-d", "stop-d")


class Way:
    """transfer: of kvway's configuration (`pd.transfer`). held: how kvway counts a decoder that stands still, which it
    leaves in half of a lease, or, where both engines were asked at once, when it finds that. without: scenes that say
    nothing of it."""

    name = transfer = "nixl"
    held = "expired"
    without = ()

    def start(self, directory):
        """Starts what both engines share."""

    def kill(self):
        pass

    def environment(self, port):
        """Environment variables of an engine that offers its KV at the port."""
        return {
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(port),
        }  # fmt: skip

    def connector(self, role, lease):
        """`--kv-transfer-config` of an engine of the role, whose lease is so many seconds."""
        return {
            "kv_connector": "NixlConnector", "kv_role": "kv_producer" if role == "prefill" else "kv_consumer",
            "kv_buffer_device": "cpu", "kv_connector_extra_config": {"kv_lease_duration": lease},
        }  # fmt: skip


class Push(Way):
    name = transfer = "nixl-push"
    held = "repeated"
    without = ("control",)

    def connector(self, role, lease):
        return {**super().connector(role, lease), "kv_connector": "NixlPushConnector"}


class Mooncake(Way):
    """Needs the package mooncake-transfer-engine-non-cuda, and mooncake_on_cpu.py."""

    name = transfer = "mooncake"
    held = "repeated"
    without = ("control",)

    def start(self, directory):
        self.folder = directory
        install("mooncake_on_cpu", directory)

    def environment(self, port):
        told = {"PYTHONPATH": f"{self.folder}:{HERE}", "VLLM_MOONCAKE_BOOTSTRAP_PORT": str(port)}
        return {**super().environment(port), **told}

    def connector(self, role, lease):
        more = {"kv_connector": "MooncakeConnector", "kv_connector_extra_config": {"mooncake_protocol": "tcp"}}
        return {**super().connector(role, lease), **more}


class P2P(Way):
    """vLLM's OffloadingConnector, with copies by the CPU (tiering_on_cpu.py)."""

    name = transfer = "p2p"
    without = ("control",)

    def environment(self, port):
        told = {"PYTHONPATH": str(HERE), "VLLM_P2P_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_P2P_SIDE_CHANNEL_PORT": str(port)}
        return {**super().environment(port), **told}

    def connector(self, role, lease):
        return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": {
            "spec_name": "CPUTieringSpec", "spec_module_path": "tiering_on_cpu", "cpu_bytes_to_use": 64 << 20,
            "secondary_tiers": [{"type": "p2p", "unbound_store_timeout_s": lease}],
        }}  # fmt: skip


class Kvtier(Way):
    """kvtier in both engines, with one kvtierd."""

    name, transfer = "kvtier", "shared"
    without = ("control", *DECODER_WAITS)
    daemon = None

    def start(self, directory):
        self.daemon = Kvtierd(directory, {"segment.size": "256MiB"})
        self.daemon.wait_up()

    def kill(self):
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.remove()

    def environment(self, port):
        return {**super().environment(port), "PYTHONPATH": f"{PACKAGE}:{HERE}", "KVTIER_LIBRARY": str(LIBRARY)}

    def connector(self, role, lease):
        cache = of_size(16, l2=through(self.daemon))
        return {
            "kv_connector": "KVTierConnector", "kv_connector_module_path": "kvtier.vllm", "kv_role": "kv_both",
            "kv_connector_extra_config": {"chunk_size": 64, "fetch_when_slower": True, "cache": cache},
        }  # fmt: skip


class LMCache(Way):
    """`lmcache server`, LMCache's multi-process mode."""

    name, transfer = "lmcache", "shared"
    without = ("control", *DECODER_WAITS)
    server = None

    def start(self, directory):
        program, options = f"{VENV}/bin/lmcache", ("--l1-size-gb", "1", "--chunk-size", "64")
        self.server = MPServer(program, directory / "lmcache.log", *options)
        until(self.server.has_answered, 120, "lmcache server")

    def kill(self):
        if self.server is not None:
            self.server.kill()

    def connector(self, role, lease):
        return self.server.connector()


WAYS = {way.name: way for way in (Way, Push, Mooncake, P2P, Kvtier, LMCache)}
