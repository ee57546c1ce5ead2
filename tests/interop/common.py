"""What the programs of this folder share: their packages, the command line, and how they compare."""
import importlib
import json
import os
import subprocess
import sys

SKIPPED = 77  # For ctest.


def need(*names):
    """The packages of these names. Ends with 77 where one of them is not installed."""
    modules = []
    for name in names:
        try:
            modules.append(importlib.import_module(name))
        except ImportError as error:
            print(f"skipped: this needs the Python packages {', '.join(names)}, and {name} cannot be"
                  f" imported ({error}); tests/interop/README.md says how to install them")
            sys.exit(SKIPPED)
    return modules[0] if len(modules) == 1 else modules


class Volta:
    """The command line."""

    def __init__(self, path):
        self.path = os.path.abspath(path)

    def run(self, *words):
        """What the command writes to standard output; a RuntimeError with its messages if it fails."""
        words = [str(word) for word in words]
        done = subprocess.run([self.path, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"volta {' '.join(words)}: {done.returncode}: {done.stderr}")
        return done.stdout

    def json(self, *words):
        return json.loads(self.run(*words, "--output", "json"))

    def logits(self, folder, ids, scratch, *more):
        """The logits [row, time, token] of `volta logits`; scratch is a folder for its files."""
        files = need("safetensors.torch")
        source, target = os.path.join(scratch, "in.st"), os.path.join(scratch, "out.st")
        files.save_file({"input_ids": ids.contiguous()}, source)
        self.run("logits", folder, "--ids", source, "--out", target, "--force", *more)
        return files.load_file(target)["logits"]


def open_model(folder):
    """A model of transformers in f32, with the plain form of attention."""
    torch, transformers = need("torch", "transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()


def logits_of(model, ids):
    with need("torch").no_grad():
        return model(ids).logits


def relative(ours, theirs):
    """The largest difference, over the largest magnitude of theirs."""
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


class Report:
    """Prints a line for each comparison and remembers whether one failed."""

    def __init__(self):
        self.failed = False

    def holds(self, what, good, detail=""):
        self.failed |= not good
        print(f"{'ok  ' if good else 'FAIL'} {what}{': ' if detail else ''}{detail}", flush=True)

    def near(self, what, error, tolerance):
        """An error that is NaN fails."""
        self.holds(what, error <= tolerance, f"{error:.1e}, allowed is {tolerance:.0e}")
