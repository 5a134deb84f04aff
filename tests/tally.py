#!/usr/bin/env python3
"""Counts what ran: reads the results that meson and pytest leave behind.

    tally.py LABEL SECONDS BUILD_DIR [LOGBASE]    rows, appended to stdout
    tally.py --summary FILE                       the table of all rows, failed tests with their reasons, the closing line

A row is `label passed failed skipped seconds`, separated by tabs; for a test that failed also `alone COMMAND` and rows `why
LINE`, the lines of its output that name the failure. A meson test that is a pytest file counts as its cases when pytest
wrote a report, else as one.
"""

import json
import os
import pathlib
import re
import shlex
import sys
import xml.etree.ElementTree as ElementTree

# What tests/integration/pytest.sh says when a file has failed.
ALONE = re.compile(r"^alone: (.*)$", re.M)
LOGS = re.compile(r"^logs: (.*)$", re.M)

# Lines that name a failure: of Check, of a sanitizer (with the first frames of its stacks), of libFuzzer, of pytest, of
# unittest.
NAMES_FAILURE = re.compile(
    r"^[^ ]+:\d+:[FE]:|Sanitizer|runtime error:|^ +(Previous|Write|Read|Location|Atomic|Mutex|As if) |^ +#[0-2] |libFuzzer:"
    r"|^E  |^FAILED |^[A-Za-z.]*(Error|Exception)\b|[Aa]ssertion"
)
WHY_LINES = 16


def results(build, logbase):
    """[(name, result, output)] of one `meson test --logbase` run; None: nothing ran."""
    log = build / "meson-logs" / f"{logbase}.json"
    if not log.exists():
        return None
    tests = []
    for line in log.read_text().splitlines():
        test = json.loads(line)
        name = test["name"].split(" / ")[-1].split(":")[-1].strip()
        tests.append((name, test["result"], test.get("stdout", "") + test.get("stderr", "")))
    return tests


def good(result):
    return result in ("OK", "EXPECTEDFAIL")


def junit_counts(path):
    """(passed, names of the failed, skipped) of one pytest report, and why cases were skipped."""
    passed = skipped = 0
    failed, reasons = [], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(case.get("name"))
        elif skip is not None:
            skipped += 1
            reasons.append(skip.get("message", "no reason given"))
        else:
            passed += 1
    return passed, failed, skipped, reasons


def why(output):
    """The lines of a failed test's output that name the failure, else its last lines."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    named = [line for line in lines if NAMES_FAILURE.search(line)]
    return [line[:300] for line in named[:WHY_LINES] or lines[-4:]] or ["nothing was printed"]


def alone(build, name, output, cases):
    """How a test that failed runs alone, each case of pytest in a line of its own, and where its logs are."""
    command, logs = ALONE.search(output), LOGS.search(output)
    tsan = os.environ.get("TSAN_OPTIONS") if "tsan" in str(build) else None
    before = f"TSAN_OPTIONS={shlex.quote(tsan)} setarch -R " if tsan else ""
    if not command:
        return [f"{before}meson test -C {build} {name} --print-errorlogs"]
    before += "env " if tsan else ""
    after = f"    # logs: {logs[1]}" if logs else ""
    def of(case):
        if not command[1].endswith(".py"):  # a folder of case files
            return " -k " + shlex.quote(case.split("[")[0])
        return shlex.quote(f"::{case}")

    return [before + command[1] + (of(case) if case else "") + after for case in cases or [None]]


def meson_counts(build, logbase):
    """Counts of one `meson test --logbase` run, why tests were skipped, and rows about those that failed."""
    passed = failed = skipped = 0
    reasons, failures = [], []
    tests = results(build, logbase)
    if tests is None:
        return 0, 1, 0, ["nothing ran"], []
    for name, result, output in tests:
        report = build / "junit" / f"{name}.xml"
        cases = []
        if report.exists():
            counts = junit_counts(report)
            cases = counts[1]
            passed += counts[0]
            failed += len(cases)
            skipped += counts[2]
            reasons += counts[3]
            failed += not good(result) and not cases  # died after its report
        elif good(result):
            passed += 1
        elif result == "SKIP":
            skipped += 1
            reasons.append(name)
        else:
            failed += 1
        if cases or not good(result) and result != "SKIP":
            failures += [("alone", command) for command in alone(build, name, output, cases)]
            failures += [("why", line) for line in why(output)]
    return passed, failed, skipped, reasons, failures


def count(label, seconds, build, logbase):
    passed, failed, skipped, reasons, failures = meson_counts(pathlib.Path(build), logbase)
    for reason in sorted(set(reasons)):
        print(f"  {label}: skipped {reasons.count(reason)}: {reason}", file=sys.stderr)
    print(label, passed, failed, skipped, seconds, sep="\t")
    for what, text in failures:
        print(what, text.replace("\t", " "), sep="\t")


def summary(path):
    lines = [line.split("\t") for line in pathlib.Path(path).read_text().splitlines()]
    rows = [line for line in lines if line[0] not in ("alone", "why")]
    width = max([len(r[0]) for r in rows], default=5)
    print(f"{'suite':<{width}}  passed  failed  skipped  seconds")
    for label, passed, failed, skipped, seconds in rows:
        print(f"{label:<{width}}  {passed:>6}  {failed:>6}  {skipped:>7}  {seconds:>7}")
    passed, failed, skipped = (sum(int(r[i]) for r in rows) for i in (1, 2, 3))
    print()
    for what, *text in lines:
        if what == "alone":
            print(f"FAILED, alone: {text[0]}")
        elif what == "why":
            print(f"    {text[0]}")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # what a test printed may be any bytes
    if sys.argv[1] == "--summary":
        sys.exit(summary(sys.argv[2]))
    count(*sys.argv[1:4], *(sys.argv[4:5] or ["testlog"]))
