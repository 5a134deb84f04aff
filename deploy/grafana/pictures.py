#!/usr/bin/env python3
"""pictures.py PROMETHEUS OUT [MINUTES] - draws the dashboards as Grafana would lay them out, as SVG.

    pictures.py http://127.0.0.1:9090 /tmp/pictures 60      # router.svg and cache.svg of the last hour

It asks Prometheus the panels' own queries, for all instances, workers and models. Where no Grafana is at hand, and for
documents. Standard library only.
"""

import html
import json
import math
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
CELL, UNIT = 50, 30  # pixels of a column of Grafana's 24 and of a row
GAP, POINTS = 6, 240
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#17becf", "#7f7f7f")


def ask(server, path, **parameters):
    url = f"{server}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)["data"]["result"]


def concrete(query, step):
    """As Grafana sends it: all of each variable, a range of some scrapes."""
    query = query.replace("$__rate_interval", f"{max(60, math.ceil(4 * step))}s")
    return re.sub(r'"\$\w+"', '".*"', query)


def legend_of(pattern, labels):
    if not pattern:
        return ""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), pattern)


def numbers(samples):
    """[(time, value)] without what is no number."""
    pairs = [(float(at), float(value)) for at, value in samples]
    return [(at, value) for at, value in pairs if math.isfinite(value)]


def written(value, unit):
    """A value as short as Grafana writes it."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        for limit, factor, name in ((1e-3, 1e6, "µs"), (1, 1e3, "ms"), (120, 1, "s"), (7200, 1 / 60, "min")):
            if abs(value) < limit and value:
                return f"{value * factor:.3g} {name}"
        return f"{value / 3600:.3g} h" if value else "0 s"
    ending = {"reqps": " /s", "Bps": "B/s", "bytes": "B"}.get(unit, "")
    base = 1024 if "B" in ending else 1000
    prefixes = ("", "Ki", "Mi", "Gi", "Ti") if base == 1024 else ("", "k", "M", "G", "T")
    power = min(int(math.log(abs(value), base)), 4) if abs(value) >= base else 0
    space = " " if base == 1024 else ""
    return f"{value / base**power:.4g}{space}{prefixes[power]}{ending}"


def text(x, y, words, size=11, anchor="start", colour="#333", weight="normal"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
        f'font-weight="{weight}">{html.escape(words)}</text>'
    )


class Frame:
    """A panel's place."""

    def __init__(self, grid):
        self.x, self.y = grid["x"] * CELL + GAP, grid["y"] * UNIT + GAP
        self.width, self.height = grid["w"] * CELL - GAP, grid["h"] * UNIT - GAP

    def box(self):
        return (
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" fill="#fff" '
            'stroke="#ccc" rx="3"/>'
        )


def nothing(frame, words="no data"):
    """In place of data."""
    while 5 * len(words) > frame.width - 12 and " " in words:  # as much as there is room for
        words = words.rpartition(" ")[0]
    return text(frame.x + frame.width / 2, frame.y + frame.height / 2 + 4, words, 10, "middle", "#999")


def stat_of(panel, frame, server, end):
    """The drawing; nothing without numbers, None without any result. As lines_of."""
    found = ask(server, "query", query=concrete(panel["targets"][0]["expr"], 15), time=end)
    values = [value for sample in found for _, value in numbers([sample["value"]])]
    if not values:
        return [] if found else None
    words = written(values[0], panel["fieldConfig"]["defaults"]["unit"])
    return [text(frame.x + frame.width / 2, frame.y + frame.height * 0.68, words, 24, "middle", "#111")]


def path_of(places):
    """The coordinates of a line, as whole pixels; a level stretch is its two ends."""
    kept = []
    for x, y in ((round(x), round(y)) for x, y in places):
        if len(kept) > 1 and kept[-2][1] == kept[-1][1] == y:
            kept[-1] = (x, y)
        elif not kept or kept[-1] != (x, y):
            kept.append((x, y))
    return " ".join(f"{x},{y}" for x, y in kept)


def lines_of(panel, frame, server, start, end):
    step, unit = max(1.0, (end - start) / POINTS), panel["fieldConfig"]["defaults"]["unit"]
    series, results = [], 0
    for target in panel["targets"]:
        parameters = {"query": concrete(target["expr"], step), "start": start, "end": end, "step": step}
        for results, one in enumerate(ask(server, "query_range", **parameters), results + 1):
            points = numbers(one["values"])
            if points:
                series.append((legend_of(target["legendFormat"], one["metric"]), points))
    if not series:
        return [] if results else None
    left, right = frame.x + 58, frame.x + frame.width - 8
    top, bottom = frame.y + 28, frame.y + frame.height - 36
    highest = panel["fieldConfig"]["defaults"].get("max") or max(v for _, points in series for _, v in points) or 1
    parts = []
    for part in range(4):
        y = bottom - (bottom - top) * part / 3
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#eee"/>')
        parts.append(text(left - 4, y + 4, written(highest * part / 3, unit), 9, "end", "#666"))
    for moment, anchor, x in ((start, "start", left), (end, "end", right)):
        parts.append(text(x, bottom + 13, time.strftime("%H:%M", time.localtime(moment)), 9, anchor, "#666"))
    at = left
    for number, (name, points) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        dots = path_of(
            (left + (when - start) / (end - start) * (right - left), bottom - min(max(value / highest, 0), 1) * (bottom - top))
            for when, value in points
        )
        parts.append(f'<polyline points="{dots}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
        if name and at + 6 * len(name) < right:  # as many as there is room for
            parts.append(text(at, bottom + 28, name, 10, "start", colour))
            at += 6 * len(name) + 14
    return parts


def draw(board, server, start, end):
    """The dashboard as SVG, and the titles of panels without data."""
    parts, empty = [], []
    for panel in board["panels"]:
        frame = Frame(panel["gridPos"])
        if panel["type"] == "row":
            parts.append(text(frame.x, frame.y + 17, panel["title"], 14, weight="bold"))
            continue
        how = stat_of(panel, frame, server, end) if panel["type"] == "stat" else lines_of(panel, frame, server, start, end)
        if not how:
            empty.append(panel["title"])
            lacking = panel["fieldConfig"]["defaults"].get("noValue") if how is None else None
            how = [nothing(frame, lacking or "no data")]
        parts += [frame.box(), text(frame.x + 8, frame.y + 17, panel["title"], 12, weight="bold"), *how]
    grids = [panel["gridPos"] for panel in board["panels"]]
    width, height = 24 * CELL + GAP, max(grid["y"] + grid["h"] for grid in grids) * UNIT + GAP
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
        f'<rect width="{width}" height="{height}" fill="#f4f5f5"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
    return svg, empty


def main(server, out, minutes=60.0):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    end = time.time()
    for path in sorted(HERE.glob("*.json")):
        svg, empty = draw(json.loads(path.read_text()), server.rstrip("/"), end - float(minutes) * 60, end)
        (out / f"{path.stem}.svg").write_text(svg)
        print(f"{out / path.stem}.svg" + (f", without data: {', '.join(empty)}" if empty else ""))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
