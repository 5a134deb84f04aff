"""A line plot as SVG: hit rate against the tier's size, one line a policy."""

import math

from lib_replay_plot import BOTTOM, COLOURS, HEIGHT, LEFT, RIGHT, TOP, WIDTH, legend_places, text


def axes(title, capacities, top, place):
    """Draws the frame, the grid and the numbers at the axes."""
    parts = [text(LEFT, 22, title, "start", 14)]
    for percent in range(0, int(top * 100) + 1, 5):
        _, y = place(capacities[0], percent / 100)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" '
                     'stroke="#ddd"/>')
        parts.append(text(LEFT - 8, y + 4, f"{percent} %", "end"))
    for capacity in capacities:
        x, _ = place(capacity, 0)
        parts.append(text(x, HEIGHT - BOTTOM + 18, f"{capacity:g} %"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(text(middle, HEIGHT - 12, "room, of all different chunks (logarithmic)"))
    parts.append(text(16, (TOP + HEIGHT - BOTTOM) / 2, "hit rate", "middle", 12,
                      f' transform="rotate(-90 16 {(TOP + HEIGHT - BOTTOM) / 2:.1f})"'))
    return parts


def write_plot(path, title, lines, bold, dashed):
    """lines: {name: [(capacity in percent, hit rate)]}; one is drawn bold, one dashed."""
    capacities = sorted({capacity for points in lines.values() for capacity, _ in points})
    most = max(rate for points in lines.values() for _, rate in points)
    top = max(0.05, math.ceil(most * 20) / 20)
    low = math.log(capacities[0])
    span = math.log(capacities[-1]) - low or 1

    def place(capacity, rate):
        return (LEFT + (math.log(capacity) - low) / span * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - rate / top * (HEIGHT - TOP - BOTTOM))

    parts = axes(title, capacities, top, place)
    ends, colours = {}, {}
    for number, (name, points) in enumerate(lines.items()):
        colours[name] = COLOURS[(number + 1) % len(COLOURS)] if name != bold else COLOURS[0]
        places = [place(*point) for point in sorted(points)]
        ends[name] = places[-1][1]
        dots = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="6 4"' if name == dashed else ""
        parts.append(f'<polyline points="{dots}" fill="none" stroke="{colours[name]}" '
                     f'stroke-width="{3 if name == bold else 1.5}"{dash}/>')
    for name, y in legend_places(ends).items():
        parts.append(text(WIDTH - RIGHT + 10, y + 4, name, "start", 12,
                          f' fill="{colours[name]}"'))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
                   f'font-family="sans-serif">\n<rect width="{WIDTH}" height="{HEIGHT}" '
                   'fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n")
