"""What the Python comparisons share: summaries of samples, and the machine's ceilings."""
import json
import os
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VOLTA = os.path.join(ROOT, "build", "release", "volta")
MACHINE = os.path.join(ROOT, "build", "release", "bench", "peers", "peers_machine")


def quantile(values, share):
    ordered = sorted(values)
    return ordered[int(share * (len(ordered) - 1) + 0.5)]


def summary(values):
    return {"median": statistics.median(values), "p10": quantile(values, 0.1),
            "p90": quantile(values, 0.9), "count": len(values)}


def in_words(values):
    return f"{values['median']:.1f} ({values['p10']:.1f}..{values['p90']:.1f})"


def memory_state(program, threads):
    """The memory's read speed and the way between two CPUs, or None without peers_machine."""
    if not os.path.exists(program):
        return None
    result = subprocess.run([program, "--threads", str(threads)], check=True, capture_output=True,
                            text=True)
    return json.loads(result.stdout)["memory"]


def state_in_words(when, memory):
    if memory is None:
        return f"# {when}: unknown, build the target peers_machine (-DVOLTA_PEERS=ON)"
    return (f"# {when}: read {memory['read_gb_per_s']:.1f} GB/s, round trip between two CPUs "
            f"{memory['round_trip_ns']:.0f} ns")


def read_ceiling(before, after):
    """GB/s to compare with: the mean of before and after, or None."""
    if before is None or after is None:
        return None
    return (before["read_gb_per_s"] + after["read_gb_per_s"]) / 2


def numbers(text):
    """"1,2" as a list, for argparse."""
    return [int(word) for word in text.split(",")]
