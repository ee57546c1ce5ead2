"""The lock of scripts/measure, for programs that build first and measure then."""
import contextlib
import fcntl
import os
from pathlib import Path


@contextlib.contextmanager
def measuring():
    """Waits until nothing else of this user measures; what runs below scripts/measure goes on."""
    if os.environ.get("VOLTA_MEASURING") == "1":
        yield
        return
    folder = Path(os.environ.get("VOLTA_CACHE_DIR") or Path.home() / ".volta")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "measure.lock", "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
