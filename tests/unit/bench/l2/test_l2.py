"""bench/run.sh l2, one part, next to nothing: its lines are there, whole, and belong together."""

import json
import shutil
import subprocess
import sys

SKIPPED = 77
# part: ({metric: (lines, peer)}, servers that must be installed)
PARTS = {
    "redis": ({"redis_put_bytes_per_second": (1, "raw_redis"),
               "redis_get_bytes_per_second": (1, "raw_redis"),
               "redis_put_cpu_seconds_per_gb": (1, "raw_redis"),
               "redis_get_cpu_seconds_per_gb": (1, "raw_redis")}, ["redis-server", "redis-benchmark"]),
    "shm": ({"shm_get_bytes_per_second": (2, "memcpy and xxh3"),
             "shm_get_cpu_seconds_per_gb": (2, "memcpy and xxh3"),
             "shm_lease_round_trip_us": (1, None)}, []),
    "put": ({"kvtierd_put_bytes_per_second": (2, "loopback stream"),
             "kvtierd_put_client_cpu_seconds_per_gb": (2, "loopback stream"),
             "kvtierd_put_cpu_seconds_per_gb": (2, "loopback stream")}, []),
    "leases": ({"kvtierd_leases_per_second": (9, None), "kvtierd_lease_p99_us": (9, None),
                "nginx_refusals_per_second": (3, None)}, ["nginx"]),
    "stall": ({"stall_find_p99_ms": (4, "limit"), "stall_get_p99_ms": (4, "limit"),
               "stall_breaker_opens_ms": (1, None), "stall_recovers_ms": (1, None)}, ["redis-server"]),
}


def check(line, peer):
    """One line."""
    assert line["bench"] == "l2" and line["unit"], line
    assert line["value"] > 0, line
    if peer is None:
        assert "ratio" not in line, line
        return
    assert line["peer"] == peer and line["ratio"] > 0 and line["peer_value"] > 0, line
    if "ratio_low" in line:
        assert line["ratio_low"] <= line["ratio"] <= line["ratio_high"], line
        assert line["low"] <= line["value"] <= line["high"], line
        assert line["pairs"] == 2, line


def main(bench, build, part):
    """Runs a part and checks what it printed."""
    metrics, servers = PARTS[part]
    for server in servers:
        if shutil.which(server) is None:
            print(f"{server} is not installed")
            return SKIPPED
    done = subprocess.run([sys.executable, f"{bench}/lib_main.py", "--build", build, "l2", "--small",
                           "--only", part], capture_output=True, text=True, check=False)
    if "two cores are needed" in done.stderr:
        print(done.stderr)
        return SKIPPED
    assert done.returncode == 0, done.stderr
    found = {}
    for line in map(json.loads, done.stdout.splitlines()):
        check(line, metrics[line["metric"]][1])
        found[line["metric"]] = found.get(line["metric"], 0) + 1
    assert found == {name: count for name, (count, _) in metrics.items()}, found
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
