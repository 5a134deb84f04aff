#!/usr/bin/env python3
"""Counts what ran: reads the results that meson and pytest leave behind.

    tally.py LABEL SECONDS BUILD_DIR [LOGBASE]    one row, appended to stdout
    tally.py --again BUILD_DIR LOGBASE            the tests that may have a second try
    tally.py --summary FILE                       the table of all rows and the closing line

A row is `label passed failed skipped seconds again`, separated by tabs. A meson test that is a
pytest file counts as its cases when pytest wrote a report, else as one. `again` names the tests
that passed only at their second try, whose results are in LOGBASE-again.
"""

import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


# A machine that is too busy makes a wait run out now and then; more at once is no accident.
AGAIN_MOST = 3
# What a second try would not make good: the report of a sanitizer.
FINDINGS = ("Sanitizer", "runtime error:")


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


def again(build, logbase):
    """Names of the few tests that failed without a sanitizer's report."""
    failed = [
        (name, output)
        for name, result, output in results(build, logbase) or []
        if not good(result) and result != "SKIP"
    ]
    if len(failed) > AGAIN_MOST:
        return []
    return [name for name, output in failed if not any(word in output for word in FINDINGS)]


def junit_counts(path):
    """(passed, failed, skipped) of one pytest report, and why cases were skipped."""
    passed = failed = skipped = 0
    reasons = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif skip is not None:
            skipped += 1
            reasons.append(skip.get("message", "no reason given"))
        else:
            passed += 1
    return passed, failed, skipped, reasons


def meson_counts(build, logbase):
    """Counts of one `meson test --logbase` run, with the second tries that followed it."""
    passed = failed = skipped = 0
    reasons = []
    first = results(build, logbase)
    if first is None:
        return 0, 1, 0, ["nothing ran"], []
    second = {name: result for name, result, _ in results(build, f"{logbase}-again") or []}
    for name, result, _ in first:
        result = second.get(name, result)
        report = build / "junit" / f"{name}.xml"
        if report.exists():
            counts = junit_counts(report)
            passed += counts[0]
            failed += counts[1]
            skipped += counts[2]
            reasons += counts[3]
            failed += not good(result) and not counts[1]  # died after its report
        elif good(result):
            passed += 1
        elif result == "SKIP":
            skipped += 1
            reasons.append(name)
        else:
            failed += 1
    return passed, failed, skipped, reasons, [n for n, result in second.items() if good(result)]


def count(label, seconds, build, logbase):
    passed, failed, skipped, reasons, late = meson_counts(pathlib.Path(build), logbase)
    for reason in sorted(set(reasons)):
        print(f"  {label}: skipped {reasons.count(reason)}: {reason}", file=sys.stderr)
    print(label, passed, failed, skipped, seconds, " ".join(late), sep="\t")


def summary(path):
    rows = [line.split("\t") for line in pathlib.Path(path).read_text().splitlines()]
    width = max([len(r[0]) for r in rows], default=5)
    print(f"{'suite':<{width}}  passed  failed  skipped  seconds")
    for label, passed, failed, skipped, seconds, *_ in rows:
        print(f"{label:<{width}}  {passed:>6}  {failed:>6}  {skipped:>7}  {seconds:>7}")
    passed, failed, skipped = (sum(int(r[i]) for r in rows) for i in (1, 2, 3))
    print()
    for label, *_, late in (row for row in rows if len(row) == 6 and row[5]):
        print(f"PASSED ONLY AT A SECOND TRY, alone, {label}: {late}")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return failed > 0 or passed == 0


if __name__ == "__main__":
    if sys.argv[1] == "--summary":
        sys.exit(summary(sys.argv[2]))
    if sys.argv[1] == "--again":
        print(*again(pathlib.Path(sys.argv[2]), sys.argv[3]), sep="\n")
        sys.exit(0)
    count(*sys.argv[1:4], *(sys.argv[4:5] or ["testlog"]))
