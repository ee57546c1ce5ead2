"""What the faults are put into: commands that write what must not be lost, what may be left when
one of them ends early, and what must hold after the next run of the same command."""
import shutil
from dataclasses import dataclass
from pathlib import Path

SENTENCE = "The licence of this text is that everybody may read it. One two three four five.\n"
MODEL = ("--layers", "1", "--heads", "2", "--dim", "16", "--context", "16", "--batch", "2", "--norm",
         "rms", "--ffn-kind", "gated", "--activation", "silu", "--position", "rotary", "--untied")
# Three checkpoints, of which the newest and the best are kept: one or two are removed.
RUN = ("--steps", "6", "--save-every", "2", "--eval-every", "2", "--eval-batches", "1", "--keep", "1",
       *MODEL)


@dataclass
class Scenario:
    """One command in a folder of its own, `arguments` being relative to it."""

    name: str
    arguments: tuple
    result: str  # What it makes: a folder or a file.
    start: str = ""  # A prepared folder that `result` is before it begins.
    replaces: bool = False  # Whether `result` must be the old one or the new one, whole.
    verify: bool = True  # Whether `volta verify` knows what the result is.
    again: tuple = ()  # The next run, where it is not the same command.
    environment: tuple = ()


def train(*arguments):
    return ("train", "--data", "../text.txt", "--out", "run", *arguments)


SCENARIOS = (
    # A run without a valid checkpoint wants to be told again what it reads.
    Scenario("train", train(*RUN), "run", again=train("--resume")),
    Scenario("resume", ("train", "--out", "run", "--resume"), "run", start="half"),
    Scenario("lora", ("train", "--init", "../model", "--data", "../text.txt", "--out", "run",
                      "--lora-rank", "2", "--steps", "2", "--save-every", "1", "--batch", "1",
                      "--context", "8", "--keep", "1"), "run",
             again=train("--init", "../model", "--resume")),
    Scenario("convert to gguf", ("convert", "../model", "out.gguf"), "out.gguf", verify=False),
    Scenario("convert to gguf over one", ("convert", "../model", "out.gguf", "--force"), "out.gguf",
             start="old.gguf", replaces=True, verify=False),
    Scenario("convert to a folder", ("convert", "../model.gguf", "out"), "out"),
    Scenario("convert over a folder", ("convert", "../model.gguf", "out", "--force"), "out",
             start="old", replaces=True),
    Scenario("quantize", ("quantize", "../model", "--weights", "q8", "--out", "out"), "out"),
    Scenario("quantize over a folder", ("quantize", "../model", "--weights", "q8", "--out", "out",
                                        "--force"), "out", start="old", replaces=True),
    Scenario("merge", ("merge", "../model", "--adapter", "../adapter", "--out", "out"), "out"),
    Scenario("merge over a folder", ("merge", "../model", "--adapter", "../adapter", "--out", "out",
                                     "--force"), "out", start="old", replaces=True),
    Scenario("tune", ("tune", "matmul", "--dim", "16", "--budget", "0.02", "--runs", "1"), "cache",
             verify=False, environment=(("VOLTA_CACHE_DIR", "cache"),)),
    Scenario("tokenizer train", ("tokenizer", "train", "--data", "../text.txt", "--vocab", "270",
                                 "--out", "out"), "out", verify=False),
    Scenario("logits", ("logits", "../model", "--ids", "../ids.safetensors", "--out",
                        "out.safetensors"), "out.safetensors", verify=False),
    Scenario("generate", ("generate", "../model", "-p", "The", "-n", "3", "--temperature", "0"), "",
             verify=False),
)


def make_base(volta, folder):
    """The files that the scenarios start from, in `folder`; volta(*words) runs and must succeed."""
    folder = Path(folder)
    (folder / "text.txt").write_text(SENTENCE * 20)
    volta("train", "--data", "text.txt", "--out", "whole", *RUN, "--keep", "0")
    shutil.copytree(folder / "whole" / "step-4", folder / "model")
    shutil.copytree(folder / "whole", folder / "half")
    shutil.rmtree(folder / "half" / "step-4")
    shutil.rmtree(folder / "half" / "step-6")
    (folder / "model" / "manifest.json").unlink()
    volta("train", "--init", "model", "--data", "text.txt", "--out", "adapter_run", "--steps", "1",
          "--lora-rank", "2", "--batch", "1", "--context", "8")
    shutil.move(folder / "adapter_run" / "step-1", folder / "adapter")
    volta("convert", "model", "model.gguf")
    volta("convert", "model", "old.gguf", "--type", "f16")
    volta("convert", "old.gguf", "old", "--dtype", "bf16")
    (folder / "old" / "mine.txt").write_text("left alone")
    header = (b'{"input_ids":{"dtype":"I64","shape":[1,4],"data_offsets":[0,32]}}')
    (folder / "ids.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(32))
