"""bench/run.sh replay, replay-pd, replay-mp and replay-scale on a made trace of sixty requests."""

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
                blocks = 2 + 2 * turn
                ids = [0, *(1000 * (talk + 1) + i for i in range(1, blocks))]
                file.write(json.dumps({"timestamp": turn * 3000 + talk * 100,
                                       "input_length": blocks * 512 - 100, "output_length": 20,
                                       "hash_ids": ids}) + "\n")


def run(bench, build, *arguments, name="replay"):
    """The benchmark; its JSON lines and its table."""
    done = subprocess.run(
        [sys.executable, os.path.join(bench, "lib_main.py"), "--build", build, name,
         "--seeds", "2", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def main(bench, build):
    """The program."""
    with tempfile.TemporaryDirectory() as folder:
        trace, plot = os.path.join(folder, "t.jsonl"), os.path.join(folder, "p.svg")
        write_trace(trace)
        small = subprocess.run(
            [os.path.join(build, "bench/replay/kvb-replay"), "--trace", trace, "--kv-tokens", "4096"],
            capture_output=True, text=True, check=False)
        assert small.returncode == 2, small
        assert "--kv-tokens: found 4096, expected at least the 6064 tokens" in small.stderr, small
        lines, text = run(bench, build, "--trace", trace, "--scale", "1,2", "--plot", plot,
                          "--policies", "kvway,round_robin,cache_aware,limit")
        value = {(line["policy"], line["scale"], line["metric"]): line["value"]
                 for line in lines if "peer" not in line}
        for scale in (1, 2):
            for metric in ("goodput", "ttft_mean_s", "e2e_mean_s", "cached_share"):
                assert ("kvway", scale, metric) in value, (scale, metric)
            assert value["kvway", scale, "cached_share"] > 0.5
            assert value["kvway", scale, "cached_share"] > value["round_robin", scale, "cached_share"]
            assert value["limit", scale, "ttft_mean_s"] < value["kvway", scale, "ttft_mean_s"]
        assert all(line["simulated"] for line in lines)
        assert [line["best"] for line in lines if line.get("peer") == "best"]
        assert "replay, simulated" in text and "cache_aware" in text
        with open(plot, encoding="utf-8") as file:
            assert file.read().count("<polyline") == 4
        roles, text = run(bench, build, "--trace", trace, "--scale", "1", name="replay-pd")
        assert {(line["pools"], line["rule"]) for line in roles} >= {
            ("", "mixed"), ("2:6", "seconds"), ("4:4", "dynamo"), ("6:2", "vllm proxy")}
        assert all(line["value"] > 0 for line in roles) and "of mixed's" in text
        servers, text = run(bench, build, "--trace", trace, "--scale", "1", name="replay-mp")
        assert {line["rule"] for line in servers} >= {"no servers", "2 GB/s, prefetch on"}
        assert "replay-mp, simulated" in text
        fleets, text = run(bench, build, "--trace", trace, "--scale", "1", name="replay-scale")
        hours = {(line["signal"], line["target"], line["behavior"]): line["value"]
                 for line in fleets if line["metric"] == "worker_hours"}
        assert hours["fixed", 8, ""] > hours["fixed", 4, ""] > hours["predicted_p90", 0.8, "calm"] > 0
        assert "worker-hours" in text and all(line["simulated"] for line in fleets)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
