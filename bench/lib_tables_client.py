"""What a client of the simulated fleets sees: kvbench, or the stock `lmcache bench engine`, and the figures that both
rest on, a row for each request in their bench_results.csv.

Times begin at the client, so that what waits at kvway is in them. At a speed other than 1 the client's times are
multiplied by it, and with them what real programs take on the way: a real millisecond of kvway, loopback and the client is
`speed` simulated ones.
"""

import csv
import os
import re
import statistics
import subprocess
import urllib.request

from lib_procs import BenchError
from lib_sim_times import answers_of, cached_share, percentile, times_of, ttfts

# refusals on kvway's metrics page: a line per class and reason
REFUSED = re.compile(r"^kvway_refused_total\{[^}]*\} (\d+)", re.M)


class Kvbench:
    """The client kvbench. It knows the speed: it sends requests faster, and the times in its file are simulated ones."""

    name = "kvbench"

    def __init__(self, options):
        self.speed = options.speed
        self.scale = 1.0  # factor from the times in the file to simulated ones
        self.start = [os.path.join(options.build, "bench/load/kvbench"), "engine"]

    def command(self, said):
        """Returns the command line; said: {option without dashes: value}."""
        return [*self.start, *words_of(said), "--quiet", "--speed", f"{self.speed:g}"]


class Stock:
    """`lmcache bench engine`, which knows nothing of speed: it gets the rate and duration of the clock."""

    name = "lmcache"

    def __init__(self, options):
        python = os.environ.get("LMCACHE_PYTHON", "")
        if not os.access(python, os.X_OK):
            raise BenchError("LMCACHE_PYTHON must name the Python of an environment with lmcache")
        self.speed = self.scale = options.speed
        self.start = [os.path.join(os.path.dirname(python), "lmcache"), "bench", "engine"]

    def command(self, said):
        said = {**said, "mrc-qps": said["mrc-qps"] * self.speed, "mrc-duration": said["mrc-duration"] / self.speed}
        return [*self.start, *words_of(said), "--quiet"]


def words_of(said):
    """Returns options as words of a command line; an option without a value is True."""
    return [word for name, value in said.items()
            for word in ([f"--{name}"] if value is True else [f"--{name}", f"{value}"])]


def ask(client, said, folder):
    """Runs the client; returns its rows. Requests that fail are rows, too."""
    done = subprocess.run(client.command({**said, "output-dir": folder}), check=False, capture_output=True, text=True)
    try:
        with open(os.path.join(folder, "bench_results.csv"), encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError:
        rows = []
    if not rows or done.returncode not in (0, 1):
        raise BenchError(f"{client.name}: {(done.stderr or done.stdout).strip()[-300:]}")
    return rows


def figures_of(rows, client):
    """Returns the client's figures, in simulated seconds. `itl`: the mean gap between tokens after the first one of each answer."""
    good = [row for row in rows if row["successful"] == "True"]
    if not good:
        raise BenchError(f"none of {len(rows)} requests was answered; the first: {rows[0]['error']}")
    scale = client.scale
    ttft = [float(row["ttft"]) * scale for row in good]
    tokens = [int(row["num_output_tokens"]) for row in good]
    itl = [(float(row["request_latency"]) - float(row["ttft"])) * scale / (count - 1)
           for row, count in zip(good, tokens) if count > 1]
    # These two columns are times of day, with both programs.
    elapsed = (max(float(row["finish_time"]) for row in rows)
               - min(float(row["submit_time"]) for row in rows)) * client.speed
    return {
        "sent": len(rows), "requests": len(good), "success": len(good) / len(rows), "elapsed": elapsed,
        "ttft_mean": statistics.fmean(ttft), "ttft_p50": percentile(ttft, 50), "ttft_p90": percentile(ttft, 90),
        "itl_p50": percentile(itl, 50) if itl else 0.0, "itl_p90": percentile(itl, 90) if itl else 0.0,
        "output_tokens_per_s": sum(tokens) / elapsed,
        "input_tokens_per_s": sum(int(row["num_input_tokens"]) for row in good) / elapsed,
    }


def worker_figures(ports):
    """What the workers say of the same requests: from when a request reached them. The warm-up's answers have one
    token. Work of the real caches takes none of this time, and what waits at kvway is not in it."""
    rows = [row for row in answers_of([times_of(port) for port in ports]) if row["generated_tokens"] > 1]
    if not rows:
        return {}
    times = ttfts(rows)
    return {"worker_ttft_mean": statistics.fmean(times), "worker_ttft_p50": percentile(times, 50),
            "worker_ttft_p90": percentile(times, 90), "cached_share": cached_share(rows)}


def refused(admin_port):
    """How many requests kvway has answered with 429, those that a client sent again without a word included."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/metrics", timeout=10) as answer:
        return sum(int(count) for count in REFUSED.findall(answer.read().decode()))


def cost(figures, workers):
    """Seconds of a server for 1,000 output tokens: times what a second of it costs, the cost of 1,000 tokens."""
    return workers / figures["output_tokens_per_s"] * 1000
