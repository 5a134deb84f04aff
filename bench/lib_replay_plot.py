"""A line plot as SVG, without any library: goodput against load, one line a policy."""

import statistics
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 820, 460
LEFT, RIGHT, TOP, BOTTOM = 60, 200, 44, 50
COLOURS = ("#d62728", "#7f7f7f", "#bcbd22", "#17becf", "#1f77b4", "#2ca02c", "#98df8a", "#ff7f0e",
           "#9467bd", "#8c564b", "#e377c2", "#000000", "#666666")


def text(x, y, words, anchor="middle", size=12, more=""):
    """Returns one line of text as SVG."""
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{more}>'
            f"{escape(words)}</text>")


def axes(title, loads, place):
    """Draws the frame, the grid and the numbers at the axes."""
    parts = [text(LEFT, 22, title, "start", 14)]
    for tenth in range(0, 11, 2):
        _, y = place(loads[0], tenth / 10)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" '
                     'stroke="#ddd"/>')
        parts.append(text(LEFT - 8, y + 4, f"{tenth * 10} %", "end"))
    for load in loads:
        x, _ = place(load, 0)
        parts.append(text(x, HEIGHT - BOTTOM + 18, f"x{load:g}"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(text(middle, HEIGHT - 12, "rate of arrivals, times the trace's own"))
    parts.append(text(16, (TOP + HEIGHT - BOTTOM) / 2, "goodput", "middle", 12,
                      f' transform="rotate(-90 16 {(TOP + HEIGHT - BOTTOM) / 2:.1f})"'))
    return parts


def legend_places(ends):
    """Returns the heights of the lines' names: near the ends of the lines, and not on top of each other."""
    placed, last = {}, TOP - 14.0
    for name, y in sorted(ends.items(), key=lambda item: item[1]):
        last = max(y, last + 15)
        placed[name] = last
    last = HEIGHT + 5.0
    for name in reversed(placed):  # names that would lie below the picture move up
        last = placed[name] = min(placed[name], last - 15)
    return placed


def write_plot(path, title, lines, dashed=("limit",)):
    """lines: {name: [(load, [goodput by seed])]}."""
    loads = sorted({load for points in lines.values() for load, _ in points})
    span = loads[-1] - loads[0] or 1

    def place(load, goodput):
        return (LEFT + (load - loads[0]) / span * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - goodput * (HEIGHT - TOP - BOTTOM))

    parts = axes(title, loads, place)
    ends = {}
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [place(load, statistics.mean(values)) for load, values in sorted(points)]
        ends[name] = places[-1][1]
        dots = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        width = 3 if number == 0 else 1.5
        dash = ' stroke-dasharray="6 4"' if name in dashed else ""
        parts.append(f'<polyline points="{dots}" fill="none" stroke="{colour}" '
                     f'stroke-width="{width}"{dash}/>')
    for name, y in legend_places(ends).items():
        colour = COLOURS[list(lines).index(name) % len(COLOURS)]
        parts.append(text(WIDTH - RIGHT + 10, y + 4, name, "start", 12, f' fill="{colour}"'))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
                   f'font-family="sans-serif">\n<rect width="{WIDTH}" height="{HEIGHT}" '
                   'fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n")
