"""bench/run.sh overload on a made trace of sixty requests: its lines, its tables, its plot."""

import json
import os
import subprocess
import sys
import tempfile

from test_replay import write_trace


def run(bench, build, *arguments):
    """The benchmark; its JSON lines and its tables."""
    done = subprocess.run(
        [sys.executable, os.path.join(bench, "lib_main.py"), "--build", build, "overload", *arguments],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def check_trace(bench, build, folder):
    """Each row has its figures, ours is compared with none and with the best peer."""
    trace, plot = os.path.join(folder, "t.jsonl"), os.path.join(folder, "p.svg")
    write_trace(trace)
    lines, text = run(bench, build, "--only", "trace", "--trace", trace, "--quick", "--plot", plot)
    own = [line for line in lines if "peer" not in line]
    rows = {(line["policy"], line["admission"]) for line in own}
    assert {("kvway", "kvway"), ("kvway", "none"), ("llmd", "llmd"), ("cache_aware", "sglang_engine"),
            ("least_requests", "envoy"), ("limit", "none")} <= rows, rows
    value = {(line["policy"], line["admission"], line["scale"], line["metric"]): line["value"]
             for line in own}
    for policy, admission in rows:
        for scale in (1, 3):
            assert 0 <= value[policy, admission, scale, "goodput"] <= 1
            assert policy == "limit" or (policy, admission, scale, "refused_share") in value
    assert value["kvway", "none", 3, "refused_share"] == 0
    compared = {(line["peer"], line["scale"]): line for line in lines if "peer" in line}
    assert set(compared) == {("none", 1), ("none", 3), ("best", 1), ("best", 3)}
    assert all(line["seeds"] == 1 and line["trace"] == "t.jsonl" and line["simulated"]
               for line in own)
    assert "kvway + kvway" in text and "least_requests + bounded_tuned" in text
    with open(plot, encoding="utf-8") as file:
        picture = file.read()
    assert picture.count("<polyline") == 12 and picture.count("stroke-dasharray") == 2


def check_scenarios(bench, build):
    """Classes have figures of their own, programs have theirs."""
    lines, _ = run(bench, build, "--only", "classes", "--quick", "--scale", "0.05", "--policies",
                   "kvway,llmd")
    assert {(line["class"], line["metric"]) for line in lines if "class" in line} == {
        (number, metric) for number in (0, 1)
        for metric in ("goodput", "refused_share", "wait_max_s")}
    lines, _ = run(bench, build, "--only", "programs", "--quick", "--scale", "0.1", "--policies",
                   "kvway,cache_aware")
    value = {(line["policy"], line["admission"], line["metric"]): line["value"]
             for line in lines if "peer" not in line}
    assert value["kvway", "none", "turn_goodput"] > 0.9
    assert value["kvway", "none", "programs_per_hour"] > 0
    assert value["cache_aware", "none", "refused_share"] == 0


def main(bench, build):
    """The program."""
    with tempfile.TemporaryDirectory() as folder:
        check_trace(bench, build, folder)
    check_scenarios(bench, build)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
