"""kvtier trace: what a running cache says of hits, misses and refusals, by its store's socket and by kvtierd."""

import json
import subprocess

from rig.client import ask
from rig.kvtierd import Kvtierd
from rig.router import BUILD
from rig.kvtier_owner import CHUNKS, key_of
from test_kvtier_erase import kvtier, owner  # noqa: F401


def events(*arguments):
    return [json.loads(line) for line in kvtier("trace", "--json", "--last", 1000, *arguments).stdout.splitlines()]


def test_a_cache_says_why_a_chunk_was_no_hit(owner, tmp_path):  # noqa: F811
    store = tmp_path / "stores"
    running = owner("anna")
    first, absent = key_of("anna", 0).hex()[:8], key_of("bob", 0).hex()[:8]
    assert running.ask("lease anna") == str(CHUNKS)
    assert running.ask("hits bob") == "0"
    (got,) = [e for e in events(store) if e["what"] == "get"]
    assert (got["key"], got["asked"], got["had"], got["memory"]) == (first, CHUNKS, CHUNKS, CHUNKS)
    missed = events("--miss", store)
    assert {(e["what"], e["why"]) for e in missed} == {("lookup", "nowhere")}
    assert absent in [e["missing"] for e in missed]
    assert {e["what"] for e in events("--key", first, store)} >= {"put", "write", "get"}
    assert events("--failed", store) == []
    shown = kvtier("trace", "--key", absent, store).stdout
    assert f"not {absent}: no tier has it" in shown
    # A chunk's way ends with the process that knew it.
    running.end()
    assert "no cache uses it now" in kvtier("trace", store, status=3).stderr


def test_chunks_that_come_from_disk_say_where_the_time_went(owner, tmp_path):  # noqa: F811
    owner("anna").end()
    running = owner()
    assert running.ask("lease anna") == str(CHUNKS)
    *reads, get = events("--slow", "0", tmp_path / "stores")
    assert get["what"] == "get" and get["nvme"] == CHUNKS and get["memory"] == 0
    reads = [e for e in reads if e["what"] == "read" and e["get"] == get["get"]]
    assert len(reads) == CHUNKS and all(e["ms"] <= get["ms"] for e in reads)
    shown = kvtier("trace", tmp_path / "stores").stdout
    assert f"{CHUNKS} from nvme" in shown and shown.count("ms in line") == CHUNKS


def test_kvtierd_shows_its_trace_at_the_admin_address_only(tmp_path):
    daemon = Kvtierd(tmp_path).wait_up()
    try:
        daemon.wait_writable()
        assert ask(daemon.port, "GET", "/trace").status == 404
        assert ask(daemon.admin_port, "GET", "/trace?limit=0").status == 400
        assert ask(daemon.port, "POST", "/v1/kv/b/none/leases?timeout_ms=0&ttl_s=1").status == 404
        answer = ask(daemon.admin_port, "GET", "/trace?limit=100")
        assert answer.status == 200
        shown = subprocess.run(
            [BUILD / "cache/command/kvtier", "trace", "-"], input=answer.body, capture_output=True, timeout=60, check=True
        ).stdout.decode()
        assert "put " in shown and "no tier has it" in shown
        daemon.stop()
    finally:
        daemon.remove()
