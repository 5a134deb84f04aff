"""Where prompts' tokens came from over time, as SVG: stacked areas, and marks where something was killed."""

from lib_replay_plot import text

WIDTH, HEIGHT = 900, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 150, 50, 50
COLOURS = ("#2ca02c", "#1f77b4", "#ff7f0e", "#9467bd")
SMOOTH = 5  # samples


def shares_of(samples, count):
    """Returns [(seconds, [share of each source])], one entry for every `count` samples."""
    found = []
    for i in range(len(samples)):
        window = samples[max(0, i - SMOOTH + 1):i + 1]
        asked = sum(sample[2] for sample in window)
        found.append((samples[i][0], [sum(sample[1][k] for sample in window) / asked if asked else 0.0
                                      for k in range(count)]))
    return found


def write_plot(path, title, watch, sources, speed):
    """watch: lib_fleet.Watch."""
    shares = shares_of(watch.samples, len(sources))
    last = shares[-1][0]

    def place(seconds, share):
        return (LEFT + seconds / last * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - min(share, 1.0) * (HEIGHT - TOP - BOTTOM))

    parts = [text(LEFT, 24, title, "start", 14)]
    below = [0.0] * len(shares)
    for number, name in enumerate(sources):
        above = [low + share[1][number] for low, share in zip(below, shares)]
        up = [place(s[0], high) for s, high in zip(shares, above)]
        down = [place(s[0], low) for s, low in zip(shares, below)]
        dots = " ".join(f"{x:.1f},{y:.1f}" for x, y in up + down[::-1])
        parts.append(f'<polygon points="{dots}" fill="{COLOURS[number]}" fill-opacity="0.75"/>')
        parts.append(text(WIDTH - RIGHT + 12, TOP + 20 * (len(sources) - number), name, "start", 13,
                          f' fill="{COLOURS[number]}"'))
        below = above
    for tenth in range(0, 11, 2):
        _, y = place(0, tenth / 10)
        parts.append(text(LEFT - 8, y + 4, f"{tenth * 10} %", "end", 11))
    for number, (seconds, words) in enumerate(watch.marks):
        x, _ = place(seconds, 0)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#d62728" '
                     'stroke-dasharray="4 3"/>')
        parts.append(text(x + 3, TOP + 12 + 15 * number, words, "start", 11, ' fill="#d62728"'))
    for quarter in range(5):
        x, _ = place(last * quarter / 4, 0)
        parts.append(text(x, HEIGHT - BOTTOM + 18, f"{last * quarter / 4 * speed:.0f}", size=11))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "simulated seconds"))
    parts.append(text(16, (TOP + HEIGHT - BOTTOM) / 2, "share of prompt tokens", "middle", 12,
                      f' transform="rotate(-90 16 {(TOP + HEIGHT - BOTTOM) / 2:.1f})"'))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
                   f'font-family="sans-serif">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n'
                   + "\n".join(parts) + "\n</svg>\n")
