"""bench/run.sh evict on a made trace of sixty requests: its lines, its table, its plot."""

import json
import os
import subprocess
import sys
import tempfile


def write_trace(path):
    """Ten conversations of six turns, each turn's prompt the last one's and more."""
    with open(path, "w", encoding="utf-8") as file:
        for turn in range(6):
            for talk in range(10):
                blocks = 20 + 20 * turn
                ids = [0, *(1000 * (talk + 1) + i for i in range(1, blocks))]
                file.write(json.dumps({"timestamp": turn * 3000 + talk * 100,
                                       "input_length": blocks * 512, "output_length": 20,
                                       "hash_ids": ids}) + "\n")


def run(bench, build, *arguments):
    """The benchmark."""
    return subprocess.run(
        [sys.executable, os.path.join(bench, "lib_main.py"), "--build", build, "evict",
         *arguments], capture_output=True, text=True, check=False)


def main(bench, build):
    """The program."""
    with tempfile.TemporaryDirectory() as folder:
        trace, plot = os.path.join(folder, "t.jsonl"), os.path.join(folder, "p.svg")
        write_trace(trace)
        done = run(bench, build, "--trace", trace, "--policies", "fifo,default", "--plot", plot)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        found = {(line["policy"], line["capacity"], line["peer"]): line for line in lines
                 if line["metric"] == "hit_rate"}
        for capacity in (0.005, 0.02, 0.05, 0.1, 0.2):
            for policy in ("fifo", "default"):
                for peer in ("lru", "optimum"):
                    line = found[policy, capacity, peer]
                    assert line["bench"] == "evict" and 0 <= line["value"] < 1, line
                assert found[policy, capacity, "optimum"]["ratio"] <= 1
            assert found["lru", capacity, "optimum"]["ratio"] <= 1
        assert found["lru", 0.2, "optimum"]["peer_value"] > found["lru", 0.005, "optimum"]["peer_value"]
        assert "optimum" in done.stderr and "default" in done.stderr
        with open(plot, encoding="utf-8") as file:
            assert file.read().count("<polyline") == 3
        assert run(bench, build, "--trace", trace, "--policies", "mru").returncode == 1
        assert run(bench, build, "--trace", plot).returncode == 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
