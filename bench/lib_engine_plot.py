"""A line plot as SVG: seconds to first token against the prompt's length, one line a source."""

import math

from lib_replay_plot import BOTTOM, COLOURS, HEIGHT, LEFT, RIGHT, TOP, WIDTH, legend_places, text


def seconds(value):
    """Returns a time with its unit."""
    return f"{value * 1000:g} ms" if value < 1 else f"{value:g} s"


def axes(title, notes, lengths, steps, place):
    """Draws the frame, the grid and the numbers at the axes."""
    parts = [text(LEFT, 18, title, "start", 14)]
    parts += [text(LEFT, 34 + 14 * i, note, "start", 11) for i, note in enumerate(notes)]
    for step in steps:
        _, y = place(lengths[0], step)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 8, y + 4, seconds(step), "end"))
    for length in lengths:
        x, _ = place(length, steps[0])
        parts.append(text(x, HEIGHT - BOTTOM + 18, f"{length}"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "tokens of the prompt"))
    return parts


def write_plot(path, title, notes, lines):
    """lines: {source: [(tokens, median, p90)]}; a stroke goes from each median to its p90."""
    lengths = sorted({tokens for points in lines.values() for tokens, _, _ in points})
    values = [value for points in lines.values() for _, median, slow in points for value in (median, slow)]
    least, most = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = [10.0 ** power * digit for power in range(least, most) for digit in (1, 3)] + [10.0 ** most]
    top = TOP + 14 * len(notes)
    span = lengths[-1] - lengths[0] or 1

    def place(tokens, value):
        return (LEFT + (tokens - lengths[0]) / span * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - (math.log10(value) - least) / (most - least) * (HEIGHT - top - BOTTOM))

    parts, ends, colours = axes(title, notes, lengths, steps, place), {}, {}
    for number, (name, points) in enumerate(lines.items()):
        colours[name] = COLOURS[number % len(COLOURS)]
        places = [place(tokens, median) for tokens, median, _ in points]
        ends[name] = places[-1][1]
        dots = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="6 4"' if name == "prefix cache" else ""
        parts.append(f'<polyline points="{dots}" fill="none" stroke="{colours[name]}" '
                     f'stroke-width="{3 if number == 0 else 1.5}"{dash}/>')
        for (x, y), (tokens, _, slow) in zip(places, points):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colours[name]}"/>')
            parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{place(tokens, slow)[1]:.1f}" '
                         f'stroke="{colours[name]}"/>')
    for name, y in legend_places(ends).items():
        parts.append(text(WIDTH - RIGHT + 10, y + 4, name, "start", 12, f' fill="{colours[name]}"'))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
                   f'font-family="sans-serif">\n<rect width="{WIDTH}" height="{HEIGHT}" '
                   'fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n")
