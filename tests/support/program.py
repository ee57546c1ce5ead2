"""Runs a program under limits and tells how it ended. For the drivers in tests/attacks and
tests/faults; needs Linux and nothing beside Python."""
import os
import signal
import struct
import subprocess
import time
from dataclasses import dataclass

# The exit codes of docs/cli.md.
DOCUMENTED = frozenset((0, 1, 2, 3, 4, 5, 6, 130))


WAITING = 6  # The machine may be busy.
SECONDS_TO_END = 5  # After an interruption.


@dataclass
class Limits:
    seconds: float = 10.0  # Of computing, and of waiting WAITING times as long.
    bytes: int = 1 << 30  # Of memory that is resident.


@dataclass
class Outcome:
    """How a program ended: `signal` is 0 unless one ended it; `limit` names the one it met."""

    code: int
    signal: int
    limit: str
    peak_bytes: int
    seconds: float
    out: bytes
    err: bytes

    def last_line(self):
        lines = self.err.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""


def busy_seconds(wall, cpu):
    """A program is blamed for the time that it computed, but not for threads side by side, nor for
    the time that it waited for a CPU."""
    return min(wall, cpu)


def outcome_of(status, limit, peak_kb, wall, cpu, out, err):
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1
    return Outcome(code, ended_by, limit, peak_kb * 1024, busy_seconds(wall, cpu), out, err)


def resident_bytes(pid):
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * 4096
    except (OSError, IndexError):
        return 0


class Program:
    """Starts the program anew for every call, or another one, `under`, that runs it."""

    def __init__(self, path, folder, environment=None, under=()):
        self.words = [*under, os.path.abspath(path)]
        self.out, self.err = (os.path.join(folder, name) for name in ("stdout", "stderr"))
        self.environment = dict(os.environ, **(environment or {}))

    def run(self, arguments, folder, limits, environment=None):
        started = time.monotonic()
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            process = subprocess.Popen(
                [*self.words, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=out,
                stderr=err, env=self.environment | (environment or {}), start_new_session=True)
        limit, pause = "", 0.001
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            late = time.monotonic() - started - limits.seconds * WAITING
            if resident_bytes(process.pid) > limits.bytes:
                limit = "memory"
            elif late > 0 and not limit:
                limit = "time"
                os.kill(process.pid, signal.SIGINT)  # Whoever takes too long is asked to end first.
            if limit == "memory" or late > SECONDS_TO_END:
                os.kill(process.pid, signal.SIGKILL)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
        process.returncode = status  # It has been waited for.
        wall = time.monotonic() - started
        return outcome_of(status, limit, usage.ru_maxrss, wall, usage.ru_utime + usage.ru_stime,
                          read(self.out), read(self.err))

    def close(self):
        pass


class Server:
    """Asks tests/attacks/command_server to run the commands in forks of itself, which costs a
    fraction of starting the program, above all with sanitizers."""

    def __init__(self, path, folder, environment=None):
        self.out, self.err = (os.path.join(folder, name) for name in ("stdout", "stderr"))
        self.process = subprocess.Popen(
            [os.path.abspath(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=dict(os.environ, **(environment or {})))

    def run(self, arguments, folder, limits, environment=None):
        settings = [f"{name}={value}" for name, value in (environment or {}).items()]
        words = [folder, self.out, self.err, str(limits.seconds * WAITING), str(limits.bytes),
                 str(len(settings)), *settings, *arguments]
        message = b"".join(os.fsencode(word) + b"\0" for word in words)
        self.process.stdin.write(struct.pack("<I", len(message)) + message)
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if len(answer) != 5:
            raise RuntimeError(f"the command server has ended: {self.process.wait()}")
        status, peak_kb = int(answer[0]), int(answer[1])
        wall, cpu, limit = float(answer[2]), float(answer[3]), answer[4].decode()
        return outcome_of(status, "" if limit == "none" else limit, peak_kb, wall, cpu,
                          read(self.out), read(self.err))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def read(path):
    with open(path, "rb") as file:
        return file.read(1 << 20)


def open_program(path, folder, environment=None):
    """The command server by its name, any other program otherwise."""
    kind = Server if os.path.basename(path) == "command_server" else Program
    return kind(path, folder, environment)
