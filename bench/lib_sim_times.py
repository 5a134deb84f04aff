"""Simulated moments of a worker's answers (kvsim's /sim/times), and what is computed from them.

Work of the real caches takes real time, for which simulated time stands still: a client's clock times the
speed counts it over and over, the workers' own moments do not count it at all.
"""

import csv
import statistics
import urllib.request


def times_of(port):
    """Returns the text of a worker's /sim/times."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/sim/times", timeout=30) as answer:
        return answer.read().decode()


def answers_of(texts):
    """Returns one {column: integer} per answer, from the texts of the workers' /sim/times."""
    return [{key: int(value) for key, value in row.items()}
            for text in texts for row in csv.DictReader(text.splitlines())]


def ttfts(answers):
    """Returns the seconds to the first token, sorted."""
    return sorted((row["first_ns"] - row["submit_ns"]) / 1e9 for row in answers)


def e2e_mean(answers):
    """Returns the mean of the seconds to the last token."""
    return statistics.fmean((row["end_ns"] - row["submit_ns"]) / 1e9 for row in answers)


def cached_share(answers):
    """Returns the share of the prompts' tokens that came from caches."""
    return sum(row["cached_tokens"] for row in answers) / sum(row["prompt_tokens"] for row in answers)


def percentile(values, p):
    """Returns the percentile p, interpolated between two values as LMCache's summary does."""
    values = sorted(values)
    at = (len(values) - 1) * p / 100
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)
