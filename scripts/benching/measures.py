"""What is measured of a `volta` program: the rates of a few whole jobs, by name."""
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

TEXT = "to be or not to be that is the question whether tis nobler in the mind to suffer\n"


class Failure(Exception):
    pass


def run(program, arguments):
    """What a command prints to standard output."""
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, env={**os.environ, "VOLTA_TUNING": "off"})
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def infer(program, threads):
    """Tokens a second of `bench infer`, by name."""
    report = json.loads(run(program, ["bench", "infer", "--runs", 5, "--tokens", 64, "--threads",
                                      threads, "--output", "json"]))
    return {f"infer, after {length['prompt']}": length["tokens_per_s"]
            for length in report["lengths"]}


def train(program, threads):
    """Tokens a second of training: the median of the later steps."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text(TEXT * 400)
        out = Path(folder) / "run"
        run(program, ["train", "--data", text, "--out", out, "--tokenizer", "char", "--layers", 4,
                      "--dim", 128, "--heads", 4, "--context", 64, "--batch", 8, "--steps", 40,
                      "--eval-every", 0, "--threads", threads])
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {"train": statistics.median(line["tokens_per_s"] for line in lines[5:])}


def jobs(threads, only):
    """What every comparison measures, as functions of a program: `infer` and `train`, each for every
    number of threads; only those whose name the regular expression `only` finds."""
    def bound(job, count):
        return lambda program: {f"{name}, {count} threads": rate
                                for name, rate in job(program, count).items()}
    return [bound(job, count) for name, job in (("infer", infer), ("train", train))
            if only.search(name) for count in threads]


def model(folder, weights):
    def measure(program, threads):
        options = ["--dtype", "bf16"] if weights == "bf16" else ["--weights", weights]
        report = json.loads(run(program, ["bench", "model", folder, "--prompt", "1,128,512",
                                          "--tokens", 32, "--runs", 1, "--threads", threads,
                                          "--output", "json", *options]))
        rates = {}
        for prompt in report["prompts"]:
            name = f"{Path(folder).name} {weights}"
            if prompt["prompt"] == 1:
                rates[f"{name}, decoding"] = prompt["decode_tokens_per_s"]
            else:
                rates[f"{name}, prompt of {prompt['prompt']}"] = prompt["prefill_tokens_per_s"]
        return rates
    return measure
