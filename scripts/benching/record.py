"""What was measured, kept: a history to which lines are added, and files that are replaced whole."""
import datetime
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HISTORY = ROOT / "bench" / "history.jsonl"


def _word(cpuinfo, names, more):
    text = Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo
    def field(name):
        match = re.search(rf"^{name}\s*:\s*(\S.*)$", text, re.MULTILINE)
        return match[1].strip().lower() if match else "unknown"
    return re.sub(r"[^a-z0-9]+", "-", "-".join([*map(field, names), *more]))


def cores():
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def signature(cpuinfo=None, count=None):
    """The kind of this CPU in one word, e.g. genuineintel-6-143-8-2-cores."""
    count = cores() if count is None else count
    return _word(cpuinfo, ["vendor_id", "cpu family", "model", "stepping"], [str(count), "cores"])


def baseline_signature(isa, threads=None, cpuinfo=None):
    """What must be equal for times of two days to be compared, in one word: the kind of CPU, the
    instruction set that the program uses, and the threads, e.g. genuineintel-6-143-amx-2-threads."""
    threads = cores() if threads is None else threads
    return _word(cpuinfo, ["vendor_id", "cpu family", "model"], [isa, str(threads), "threads"])


def version_of(program):
    """What `volta version` tells: commit, isa, compiler, flags."""
    told = subprocess.run([str(program), "version", "--output", "json"], capture_output=True,
                          text=True, check=True)
    return json.loads(told.stdout)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def entry(program, figures):
    """One line of the history: commit, machine, figures."""
    version = version_of(program)
    return {"date": now(), "commit": version["commit"], "machine": signature(),
            "isa": version["isa"], "figures": figures}


def append(path, line):
    """Adds one line; what the file has stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, sort_keys=True) + "\n")


def replace(path, text):
    """Makes `text` the whole of a file: a reader, or a loss of power, finds the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
