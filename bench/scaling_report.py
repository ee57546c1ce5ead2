"""What bench/scaling makes of its measurements: speed-ups, the machine's own beside them, a table
for people, JSON for programs and a picture. It runs nothing, so that it can be tested without a
machine of many cores."""
import math
from xml.sax.saxutils import escape

# Readable on white and on black; further lines begin with the first one again.
COLOURS = ["#2f7ed8", "#d9730d", "#2e9e5b", "#c2405a", "#8a5fd6", "#8c8c3a", "#1a9aa8", "#a8541a"]
WIDTH, HEIGHT = 860, 430
LEFT, RIGHT, TOP, BOTTOM, LEGEND_LINE = 64, 20, 44, 52, 18


class Series:
    """One kind of work at several numbers of threads. `bounds` names the series of the machine that
    bound it ("f32", "bf16", "int8", "memory"); it cannot scale better than the least of them."""

    def __init__(self, name, unit, bounds, rates):
        self.name, self.unit, self.bounds, self.rates = name, unit, tuple(bounds), dict(rates)

    def threads(self):
        return sorted(self.rates)

    def speedup(self, threads):
        """How many times as fast as with the fewest threads measured; None if unknown."""
        base = self.rates.get(self.threads()[0]) if self.rates else None
        if not base or threads not in self.rates:
            return None
        return self.rates[threads] / base


def machine_speedup(series, machine, threads):
    """What the machine allows: the least of the bounds' speed-ups, from the same number of threads
    on. None if no bound was measured at both numbers."""
    first = series.threads()[0]
    known = []
    for bound in series.bounds:
        rates = machine[bound].rates if bound in machine else {}
        if rates.get(first) and threads in rates:
            known.append(rates[threads] / rates[first])
    return min(known) if known else None


def share(series, machine, threads):
    """The part of the machine's own scaling that the work reaches; None if it is unknown."""
    own, allowed = series.speedup(threads), machine_speedup(series, machine, threads)
    return own / allowed if own and allowed else None


def in_words(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def text(machine, work):
    """A table: for each number of threads the rate, the speed-up and the share of the machine's."""
    counts = sorted({count for line in [*machine.values(), *work] for count in line.rates})
    if not counts:
        return "nothing was measured\n"
    title = "speed (speed-up" + ("; share of the machine's)" if work else ")")
    width = max(len(f"{line.name}, {line.unit}") for line in [*machine.values(), *work])
    cells = max(len(f"{rate:.1f}") for line in [*machine.values(), *work]
                for rate in line.rates.values()) + len(" (16.00; 1.00)")
    lines = [title, " " * width + "".join(f"{f'{count} threads':>{cells + 2}}"
                                          for count in counts)]
    for line in [*machine.values(), *work]:
        row = f"{f'{line.name}, {line.unit}':<{width}}"
        for count in counts:
            cell = ""
            if count in line.rates:
                part = share(line, machine, count)
                cell = f"{line.rates[count]:.1f} ({in_words(line.speedup(count))}"
                cell += f"; {in_words(part)})" if part is not None else ")"
            row += f"{cell:>{cells + 2}}"
        lines.append(row.rstrip())
    return "\n".join(lines) + "\n"


def to_json(machine, work):
    """The same as plain data."""
    def entry(line):
        points = []
        for count in line.threads():
            points.append({"threads": count, "rate": line.rates[count],
                           "speedup": line.speedup(count),
                           "machine_speedup": machine_speedup(line, machine, count),
                           "share": share(line, machine, count)})
        return {"name": line.name, "unit": line.unit, "bounds": list(line.bounds),
                "points": points}
    return {"machine": [entry(line) for line in machine.values()],
            "work": [entry(line) for line in work]}


def scale(low, high, begin, end):
    """Maps a number of threads or a speed-up to pixels; doublings are equally far apart."""
    def place(value):
        span = math.log2(high / low)
        return begin + (math.log2(value / low) / span if span else 0.5) * (end - begin)
    return place


def svg(machine, work):
    """Speed-ups over threads, both axes in doublings. The machine's lines are dashed, and the thin
    grey line is a speed-up equal to the number of threads."""
    lines = [line for line in [*machine.values(), *work] if line.rates]
    counts = sorted({count for line in lines for count in line.rates}) or [1]
    ups = [line.speedup(count) for line in lines for count in line.rates] or [1.0]
    first, last = counts[0], max(counts[-1], 2 * counts[0])
    low = min(1.0, *ups)
    high = max(2.0, last / first, *ups)
    x = scale(first, last, LEFT, WIDTH - RIGHT)
    y = scale(low, high, TOP + HEIGHT, TOP)
    height = TOP + HEIGHT + BOTTOM + LEGEND_LINE * ((len(lines) + 1) // 2)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" '
           'fill="#808080">',
           '<style>.grid{stroke:#808080;stroke-opacity:.25}.line{fill:none;stroke-width:2}'
           '</style>',
           f'<text x="{LEFT}" y="24" font-size="15">speed-up by threads</text>']
    for count in counts:
        out.append(f'<line class="grid" x1="{x(count):.1f}" x2="{x(count):.1f}" y1="{TOP}" '
                   f'y2="{TOP + HEIGHT}"/><text x="{x(count):.1f}" y="{TOP + HEIGHT + 18}" '
                   f'text-anchor="middle">{count}</text>')
    level = 1.0
    while level <= high:
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(level):.1f}" '
                   f'y2="{y(level):.1f}"/><text x="{LEFT - 8}" y="{y(level) + 4:.1f}" '
                   f'text-anchor="end">{level:.0f}x</text>')
        level *= 2
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{TOP + HEIGHT + 38}" '
               'text-anchor="middle">threads</text>')
    out.append(f'<line stroke="#808080" x1="{x(first):.1f}" y1="{y(1.0):.1f}" '
               f'x2="{x(last):.1f}" y2="{y(last / first):.1f}"/>')
    for i, line in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        dashes = ' stroke-dasharray="6 4"' if line.name in machine else ""
        points = " ".join(f"{x(count):.1f},{y(line.speedup(count)):.1f}"
                          for count in line.threads())
        out.append(f'<polyline class="line" stroke="{colour}"{dashes} points="{points}"/>')
        for count in line.threads():
            out.append(f'<circle cx="{x(count):.1f}" cy="{y(line.speedup(count)):.1f}" r="3" '
                       f'fill="{colour}"/>')
        left = LEFT + i % 2 * (WIDTH - LEFT) / 2
        down = TOP + HEIGHT + BOTTOM + LEGEND_LINE * (i // 2) + 4
        best = line.speedup(line.threads()[-1])
        out.append(f'<line stroke="{colour}" stroke-width="2"{dashes} x1="{left}" '
                   f'x2="{left + 26}" y1="{down - 4}" y2="{down - 4}"/><text x="{left + 34}" '
                   f'y="{down}">{escape(line.name)}: {best:.1f}x</text>')
    return "\n".join([*out, "</svg>", ""])
