"""kvway before workers that run so many times as fast as the clock: what its configuration says of time, divided by
the speed.

kvway counts real time. At speed 5 a default of 30 s would be 150 simulated ones, so that a queue would be allowed to
become five times as long as in reality. Here stands everything that is scaled, by name, and nowhere else; defaults come
from keys.def. What protects against a machine that is busy or a program that hangs stays real (`timeouts.connect`,
`health.timeout`, `timeouts.head` and others): the programs of the bench run in real time. What no key names, such as the
0.1 to 2 s of the admission's own constants, counts in real time as well, and is the reason to prefer a low speed.
"""

import os
import re

KEYS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../config/keys.def")
KEY = re.compile(r'KVW_KEY\("([\w.]+)", (RATIO|DURATION), \w+, "([^"]*)", "([^"]*)"')
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}

# Keys that say how fast workers are: kvway must expect their simulated speed in real time.
SPEEDS = ("routing.prefill_tokens_per_second",)
COSTS = ("routing.attention_ns_per_pair", "routing.context_ns_per_token", "kvaware.host_ns_per_token",
         "kvaware.disk_ns_per_token", "kvaware.remote_ns_per_token")
# Keys that say how long requests may wait and take, and how often kvway probes workers.
LIMITS = ("routing.slow_start", "admission.max_wait", "admission.worker_queue", "timeouts.first_token",
          "timeouts.attempt", "timeouts.request", "timeouts.stream_idle", "upstream.stall", "health.interval",
          "health.models_interval", "health.metrics_interval", "ejection.window", "ejection.time",
          "ejection.max_time")


def milliseconds(text):
    """Returns the milliseconds of a duration as keys.def writes it."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)", text).groups()
    return int(number) * UNITS_MS[unit]


def defaults():
    """Returns {key: (default, least value)} of keys.def."""
    with open(KEYS, encoding="utf-8") as file:
        return {name: (default, least) for name, _, default, least in KEY.findall(file.read())}


def scaled(speed):
    """Returns {key: value} of all keys that are scaled. A limit that is off (0) stays off; no value is below its least one."""
    keys = defaults()
    values = {name: f"{float(keys[name][0]) * speed:.6f}" for name in SPEEDS}
    values.update({name: f"{float(keys[name][0]) / speed:.6f}" for name in COSTS})
    for name in LIMITS:
        default, least = map(milliseconds, keys[name])
        if default:
            values[name] = f"{max(least, round(default / speed))}ms"
    return values


def lines_of(values, indent="  "):
    """Returns {key within a section: value} as lines of YAML."""
    return "".join(f"{indent}{name}: {value}\n" for name, value in values.items())


def rates(speed):
    """Returns lines of the section routing; none at speed 1, where the defaults are right."""
    return sections(speed, only="routing")


def limits(speed, more=None):
    """Returns the other sections. more: {key: value} of the caller's, which go into the same sections and win over scaled ones."""
    return sections(speed, more, leave="routing")


def sections(speed, more=None, only=None, leave=None):
    """Returns YAML of the scaled keys and `more`. only: the lines of that section alone; leave: all sections but that one."""
    values = {**(scaled(speed) if speed != 1 else {}), **(more or {})}
    found = {}
    for key, value in values.items():
        section, name = key.split(".", 1)
        found.setdefault(section, {})[name] = value
    if only:
        return lines_of(found.get(only, {}))
    return "".join(f"{section}:\n{lines_of(names)}" for section, names in found.items() if section != leave)
