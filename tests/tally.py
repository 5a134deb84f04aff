#!/usr/bin/env python3
"""Counts what ran: reads the results that meson and pytest leave behind.

    tally.py LABEL SECONDS BUILD_DIR [LOGBASE]    one row, appended to stdout
    tally.py --summary FILE                       the table of all rows and the closing line

A row is `label passed failed skipped seconds`, separated by tabs. A meson test that is a pytest
file counts as its cases when pytest wrote a report, else as one.
"""

import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


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
    """Counts of one `meson test --logbase` run."""
    passed = failed = skipped = 0
    reasons = []
    log = build / "meson-logs" / f"{logbase}.json"
    if not log.exists():
        return 0, 1, 0, ["nothing ran"]
    for line in log.read_text().splitlines():
        test = json.loads(line)
        name = test["name"].split(" / ")[-1].split(":")[-1].strip()
        report = build / "junit" / f"{name}.xml"
        good = test["result"] in ("OK", "EXPECTEDFAIL")
        if report.exists():
            counts = junit_counts(report)
            passed += counts[0]
            failed += counts[1]
            skipped += counts[2]
            reasons += counts[3]
            failed += not good and not counts[1]  # died after its report
        elif good:
            passed += 1
        elif test["result"] == "SKIP":
            skipped += 1
            reasons.append(name)
        else:
            failed += 1
    return passed, failed, skipped, reasons


def count(label, seconds, build, logbase):
    passed, failed, skipped, reasons = meson_counts(pathlib.Path(build), logbase)
    for reason in sorted(set(reasons)):
        print(f"  {label}: skipped {reasons.count(reason)}: {reason}", file=sys.stderr)
    print(label, passed, failed, skipped, seconds, sep="\t")


def summary(path):
    rows = [line.split("\t") for line in pathlib.Path(path).read_text().splitlines()]
    width = max([len(r[0]) for r in rows], default=5)
    print(f"{'suite':<{width}}  passed  failed  skipped  seconds")
    for label, passed, failed, skipped, seconds in rows:
        print(f"{label:<{width}}  {passed:>6}  {failed:>6}  {skipped:>7}  {seconds:>7}")
    passed, failed, skipped = (sum(int(r[i]) for r in rows) for i in (1, 2, 3))
    print()
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return failed > 0 or passed == 0


if __name__ == "__main__":
    if sys.argv[1] == "--summary":
        sys.exit(summary(sys.argv[2]))
    count(*sys.argv[1:4], *(sys.argv[4:5] or ["testlog"]))
