"""The statistics of two programs measured in turn: the median of paired ratios, and its interval."""
import math
import random
import statistics
from typing import NamedTuple

RESAMPLES = 2000
CONFIDENCE = 0.99


class Verdict(NamedTuple):
    ratio: float  # The median of new / old over the rounds; below 1 the new one is slower.
    low: float    # The ends of the bootstrap interval of that median.
    high: float
    kind: str     # "ok", "loss", or "unclear": a loss, if it is one, is inside of the noise.


def interval(values, seed=1):
    """(low, high): where the median of `values` lies, by the percentile bootstrap."""
    generator = random.Random(seed)
    medians = sorted(statistics.median(generator.choices(values, k=len(values)))
                     for _ in range(RESAMPLES))
    cut = int((1 - CONFIDENCE) / 2 * RESAMPLES)
    return medians[cut], medians[-1 - cut]


def judge(old, new, limit):
    """The Verdict on rates that were measured in pairs, round by round.

    A loss is one over the limit whose interval does not reach 1. What disturbs the machine for longer
    than a round disturbs both of a pair, and drops out of their ratio.
    """
    logs = [math.log(b / a) for a, b in zip(old, new)]
    low, high = (math.exp(end) for end in interval(logs))
    ratio = math.exp(statistics.median(logs))
    kind = "ok"
    if ratio < 1 - limit:
        kind = "loss" if high < 1 else "unclear"
    return Verdict(ratio, low, high, kind)


def measure(programs, jobs, limit, rounds, most):
    """{name: (rates of the old, rates of the new)}: `rounds` rounds, and up to `most` while a verdict
    is unclear. `jobs` are functions of a program that return {name: rate}.
    """
    rates = {}
    for turn in range(most):
        if turn >= rounds and all(judge(*pair, limit).kind != "unclear" for pair in rates.values()):
            break
        for job in jobs:
            for which in ((0, 1) if turn % 2 == 0 else (1, 0)):
                for name, rate in job(programs[which]).items():
                    rates.setdefault(name, ([], []))[which].append(rate)
    return rates
