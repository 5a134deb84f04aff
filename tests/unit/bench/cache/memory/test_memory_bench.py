"""memory_bench, small: its figures, their units, and ratios that are those of their pairs."""

import json
import subprocess
import sys

POLICIES = {"default", "lru", "lfu", "fifo", "arc", "s3fifo", "wtinylfu", "cost", "density"}


def main(program):
    """One round of everything."""
    done = subprocess.run([program, "-r", "1", "-m", "256", "-n", "8000", "-l", "2"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for line in lines:
        assert line["bench"] == "cache" and line["value"] > 0, line
        if "peer" in line:
            expected = line["value"] / line["peer_value"]
            assert abs(line["ratio"] / expected - 1) < 0.01, line
    named = {}
    for line in lines:
        named.setdefault(line["metric"], []).append(line)
    assert [line["threads"] for line in named["l1_put_bytes_per_second"]] == [1, 2]
    assert all(line["peer"] == "memcpy" for line in named["l1_put_bytes_per_second"])
    assert named["l1_verify_bytes_per_second"][0]["peer"] == "xxh3"
    assert [line["chain"] for line in named["get_ns_per_chunk"]] == [1, 16]
    for metric in ("lookup_1000_warm_us", "lookup_1000_random_us"):
        assert named[metric][0]["through"] == "kvt_lookup", named[metric]
        assert named[metric][0]["chunks"] == 8000, named[metric]
    cost = named["metadata_bytes_per_chunk"]
    assert {line["policy"] for line in cost} == POLICIES, cost
    # Full, and not more than full.
    assert all(1900 <= line["chunks"] <= 2000 for line in cost), cost


if __name__ == "__main__":
    main(sys.argv[1])
