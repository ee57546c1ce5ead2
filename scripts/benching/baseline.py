"""Figures of an earlier commit that are kept in the tree: reading, writing and judging them.

Two kinds of files, both JSON with one figure a line, so that a diff shows which of them changed:
rates of one kind of CPU (median and its interval), and instructions of small jobs.
"""
import json
import math
import statistics
from typing import NamedTuple

import paired
import record

VERSION = 1
FOLDER = record.ROOT / "bench" / "baselines"
INSTRUCTIONS = "instructions-avx2.json"
MOST_BYTES = 1 << 20
TOLD = ("date", "commit", "compiler", "flags")  # Of the program that was measured.


class Damaged(Exception):
    pass


class Rate(NamedTuple):
    """Tokens a second: the median of `rounds` rounds, and the bootstrap interval of that median."""

    median: float
    low: float
    high: float
    rounds: int


def rate_of(values):
    low, high = paired.interval(values)
    return Rate(round(statistics.median(values), 2), round(low, 2), round(high, 2), len(values))


def judge(old, values, limit):
    """The paired.Verdict on rates of now against those of the baseline.

    A loss is one over the limit whose interval lies below that of the baseline.
    """
    new = rate_of(values)
    ratio, low, high = new.median / old.median, new.low / old.high, new.high / old.low
    kind = "ok"
    if ratio < 1 - limit:
        kind = "loss" if high < 1 else "unclear"
    return paired.Verdict(ratio, low, high, kind)


def is_noisy(values, limit):
    """Whether the interval is so wide that a loss of `limit` could lie in it."""
    rate = rate_of(values)
    return rate.high - rate.low > limit * rate.median


def measure(program, jobs, old, limit, rounds, most):
    """{name: rates}: `rounds` rounds, and up to `most` while a verdict against `old` is unclear, or,
    without an old figure, while the new one is noisy."""
    def is_unclear(name, values):
        if name in old:
            return judge(old[name], values, limit).kind == "unclear"
        return is_noisy(values, limit)
    rates = {}
    for turn in range(most):
        if turn >= rounds and not any(is_unclear(*item) for item in rates.items()):
            break
        for job in jobs:
            for name, rate in job(program).items():
                rates.setdefault(name, []).append(rate)
    return rates


def _text(told, key, figures):
    lines = [f"  {json.dumps(name)}: {json.dumps(told[name])}," for name in told]
    rows = [f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(figures.items())]
    return "\n".join(["{", f'  "version": {VERSION},', *lines, f'  "{key}": {{',
                      ",\n".join(rows), "  }", "}"]) + "\n"


def write_rates(path, told, rates):
    record.replace(path, _text(told, "rates", {name: rate._asdict() for name, rate in rates.items()}))


def write_counts(path, told, counts):
    record.replace(path, _text(told, "counts", counts))


def _number(value):
    return (isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            and value > 0)


def _rate(value):
    if not isinstance(value, dict) or set(value) != set(Rate._fields):
        return None
    rate = Rate(**value)
    ordered = all(map(_number, rate)) and rate.low <= rate.median <= rate.high
    return rate if ordered and isinstance(rate.rounds, int) else None


def _count(value):
    return value if _number(value) and isinstance(value, int) else None


def _read(path, key, figure):
    """(what the file tells of its program, {name: figure}), or None if there is no such file."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    try:
        root = json.loads(content) if len(content) <= MOST_BYTES else None
    except (ValueError, RecursionError) as problem:
        raise Damaged(f"{path} is damaged: it is no JSON ({problem})") from None
    if not isinstance(root, dict) or root.get("version") != VERSION:
        raise Damaged(f"{path} is damaged: it is no baseline of version {VERSION}")
    told = {name: root.get(name) for name in TOLD}
    for name, value in told.items():
        if not isinstance(value, str):
            raise Damaged(f"{path} is damaged: '{name}' is missing or no text")
    values = root.get(key)
    if not isinstance(values, dict) or not values:
        raise Damaged(f"{path} is damaged: '{key}' is missing or empty")
    figures = {name: figure(value) for name, value in values.items()}
    for name, value in figures.items():
        if value is None:
            raise Damaged(f"{path} is damaged: the figure '{name}' is {json.dumps(values[name])}")
    return told, figures


def read_rates(path):
    return _read(path, "rates", _rate)


def read_counts(path):
    return _read(path, "counts", _count)
