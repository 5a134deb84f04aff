"""Gains along the sweeps as SVG: one panel for each assumption, one line a figure, published gains dashed."""

import math

from lib_replay_plot import COLOURS, text

PANEL, GAP, HIGH, TOP, BOTTOM, LEFT, RIGHT = 240, 34, 300, 76, 44, 60, 190
TICKS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
LOWEST, HIGHEST = 1 / 1024, 8


def height_of(gain):
    """Returns a gain's height on a logarithmic axis, since gains are ratios."""
    share = math.log(min(max(gain, LOWEST), HIGHEST) / LOWEST) / math.log(HIGHEST / LOWEST)
    return TOP + HIGH * (1 - share)


def short(value):
    """Returns a number rounded for people."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}K" if value >= 1e4 else f"{value:g}"


def frame(left, title):
    """Draws the frame of one panel."""
    parts = [f'<rect x="{left}" y="{TOP}" width="{PANEL}" height="{HIGH}" fill="none" stroke="#bbb"/>',
             text(left + PANEL / 2, TOP - 10, title)]
    for tick in TICKS:
        y = height_of(tick)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + PANEL}" y2="{y:.1f}" stroke="#eee"/>')
    return parts


def panel(left, sweep, values, gains, published):
    """Draws the lines of one sweep; values are sorted, gains[i] = {figure: gain}."""
    parts = frame(left, f"{sweep.name}, {sweep.unit}".rstrip(", "))
    step = PANEL / (len(values) + 1)
    places = [left + step * (i + 1) for i in range(len(values))]
    for x, value in zip(places, values):
        parts.append(text(x, TOP + HIGH + 16, short(value), size=11))
    for number, (name, wanted) in enumerate(published.items()):
        colour = COLOURS[number]
        dots = " ".join(f"{x:.1f},{height_of(g[name]):.1f}" for x, g in zip(places, gains))
        y = height_of(wanted)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + PANEL}" y2="{y:.1f}" stroke="{colour}" '
                     'stroke-dasharray="5 4"/>')
        parts.append(f'<polyline points="{dots}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return parts


def write_plot(path, spec, measured):
    """measured: [(sweep or None, value, {figure: gain})], the middle first."""
    sweeps = [s for s in spec.sweeps if any(point[0] is not None and point[0].name == s.name for point in measured)]
    width = LEFT + max(1, len(sweeps)) * (PANEL + GAP) + RIGHT
    height = TOP + HIGH + BOTTOM
    parts = [text(LEFT, 22, f"{spec.title}", "start", 14),
             text(LEFT, 40, "simulated; gain = ours / base; dashed: published", "start", 11)]
    for number, sweep in enumerate(sweeps):
        points = {value: gains for other, value, gains in measured
                  if other is not None and other.name == sweep.name}
        points[sweep.middle] = measured[0][2]
        values = sorted(points)
        parts += panel(LEFT + number * (PANEL + GAP), sweep, values, [points[v] for v in values], spec.ratios)
    for tick in TICKS:
        parts.append(text(LEFT - 8, height_of(tick) + 4, f"{tick:g}", "end", 11))
    for number, name in enumerate(spec.ratios):
        parts.append(text(width - RIGHT + 10, TOP + 16 + 18 * number, name, "start", 12,
                          f' fill="{COLOURS[number]}"'))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                   f'font-family="sans-serif">\n<rect width="{width}" height="{height}" fill="#fff"/>\n'
                   + "\n".join(parts) + "\n</svg>\n")
