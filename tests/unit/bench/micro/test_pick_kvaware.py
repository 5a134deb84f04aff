"""kvaware_bench on few conversations: its figures, and that hits are what they must be."""

import json
import subprocess
import sys

WANTED = {"decisions_per_second", "decision_us_p50", "decision_us_p99", "decision_us_p50_beside_events",
          "decision_us_p99_beside_events", "events_per_second", "hit_tokens"}


def main(program):
    """The program."""
    done = subprocess.run([program, "-n", "200", "-r", "1", "-s", "0.2"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    value = {line["metric"]: line["value"] for line in map(json.loads, done.stdout.splitlines())}
    assert set(value) == WANTED, done.stdout
    assert all(figure > 0 for figure in value.values()), done.stdout
    # 256 of 280 blocks are held by some worker, which is chosen unless it is busy.
    assert 1024 <= value["hit_tokens"] <= 4096, value
    assert "p99 is " in done.stderr, "how much slower a decision is while events come in"


if __name__ == "__main__":
    main(sys.argv[1])
