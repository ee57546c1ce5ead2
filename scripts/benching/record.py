"""What was measured, kept: a history to which lines are added."""
import datetime
import json
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HISTORY = ROOT / "bench" / "history.jsonl"


def signature(cpuinfo=None, cores=None):
    """The kind of this CPU in one word, e.g. genuineintel-6-143-8-2-cores."""
    text = Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo
    def field(name):
        match = re.search(rf"^{name}\s*:\s*(\S.*)$", text, re.MULTILINE)
        return match[1].strip().lower() if match else "unknown"
    parts = [field("vendor_id"), field("cpu family"), field("model"), field("stepping")]
    cores = len(os.sched_getaffinity(0)) if cores is None else cores
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts)) + f"-{cores}-cores"


def entry(program, figures):
    """One line of the history: commit, machine, figures."""
    told = subprocess.run([str(program), "version", "--output", "json"], capture_output=True,
                          text=True, check=True)
    version = json.loads(told.stdout)
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"date": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": version["commit"],
            "machine": signature(), "isa": version["isa"], "figures": figures}


def append(path, line):
    """Adds one line; what the file has stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, sort_keys=True) + "\n")
