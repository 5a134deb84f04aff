"""bench/run.sh pick on one small line with two threads: its figures and its table."""

import json
import os
import subprocess
import sys

WANTED = {"decisions_per_second": "1/s", "decision_us_p50": "us", "decision_us_p99": "us",
          "inserts_per_second": "1/s", "bytes_per_cached_prompt_token": "B", "hit_chunks": "1",
          "threads_gain": "x"}


def main(bench, build):
    """The program."""
    done = subprocess.run(
        [sys.executable, os.path.join(bench, "lib_main.py"), "--build", build, "pick",
         "--line", "14", "--rounds", "1", "--seconds", "0.2"],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["metric"]: line["unit"] for line in lines} == WANTED, done.stdout
    for line in lines:
        assert line["bench"] == "pick" and line["value"] > 0, line
        assert line["workers"] == 64 and line["threads"] == 2 and line["depth"] == 64, line
        assert line["nodes"] > 2000 and line["holders_mean"] >= 1, line
    value = {line["metric"]: line for line in lines}
    # Six of seven branches and most of the last segment were known before.
    assert 40 < value["hit_chunks"]["value"] <= 58, value["hit_chunks"]
    assert value["threads_gain"]["peer"] == "pointer chase"
    assert value["threads_gain"]["ratio"] > 0
    assert "pointer chase" in done.stderr


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
