"""The kinds of hostile files: what the n-th mutant of each is, and which commands read it.

A mutant lies in the folder `in` of a case; what commands write goes to `out*`. Both are made from
(kind, seed, n) alone, given the same seeds."""
import os
import shutil
from dataclasses import dataclass, field

import dataset_mutator
import gguf_mutator
import json_mutator
import safetensors_mutator
import template_mutator
import tokenizer_mutator

READS = ("generate", "in", "--ids", "1,2", "-n", "2", "--temperature", "0")


@dataclass
class Command:
    arguments: tuple
    writes: tuple = ()  # Entries of the case that it may make or change.
    environment: dict = field(default_factory=dict)
    result: str = ""  # A folder that `volta verify` must call good if this command ends with 0.
    trusts: str = ""  # A folder: if `volta verify` called it good, this command must accept it.
    long: bool = False  # It may go on for long, but must end when it is interrupted.


def command(*arguments, **rest):
    return Command(tuple(str(word) for word in arguments), **rest)


class Case:
    """One mutant in the making: the folder `in` and the commands that will read it."""

    def __init__(self, seeds, folder, rng):
        self.seeds, self.folder, self.rng = seeds, folder, rng
        self.commands = []
        self.inputs = folder / "in"

    def copy(self, source):
        shutil.copytree(source, self.inputs, symlinks=True)

    def rewrite(self, name, mutate):
        path = self.inputs / name
        replaced = path.is_symlink() or (path.exists() and not path.is_file())
        if replaced or (path.exists() and path.stat().st_size > 1 << 26):
            return  # replace_file() was here. Through a link this would write outside the case.
        data = path.read_bytes() if path.exists() else b"{}"
        path.write_bytes(mutate(data, self.rng))

    def add(self, *arguments, **rest):
        self.commands.append(command(*arguments, **rest))

    def add_some(self, count, *commands):
        self.commands += self.rng.sample(commands, min(count, len(commands)))

    def replace_file(self):
        """A link, a pipe, a folder or a huge hole where a file was, or beside it."""
        rng = self.rng
        files = sorted(path for path in self.inputs.rglob("*") if path.is_file())
        extra = [self.inputs / name for name in
                 ("vocab.txt", "tokenizer.model", "merges.txt", "chat_template.jinja", ".lock",
                  "metrics.jsonl", "special_tokens_map.json", "generation_config.json",
                  "manifest.json", "adapter_config.json")]
        path = rng.choice(files + extra)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()  # An earlier call has made it.
        else:
            path.unlink(missing_ok=True)
        up = "../" * (len(path.relative_to(self.folder).parts) - 1)
        target = rng.choice((up + "../canary/secret.txt", up + "../canary/config.json", "/dev/zero",
                             path.name, "nowhere", ".", up + "../canary/folder"))
        kind = rng.randrange(8)
        if kind <= 3:
            path.symlink_to(target)
        elif kind == 4:
            os.mkfifo(path)
        elif kind == 5:
            path.mkdir()
        elif kind == 6:
            path.write_bytes(b"")
        else:
            with open(path, "wb") as file:
                file.truncate(rng.choice((1 << 20, 3 << 30, 100 << 30)))


def any_model_commands(case, folder="in"):
    """Commands that take a model folder, beside `verify` and `generate`."""
    seeds, out = case.seeds, {"writes": ("out",)}
    return (
        command("inspect", folder, trusts=folder),
        command("eval", folder, "--data", seeds.text),
        command("convert", folder, "out.gguf", writes=("out.gguf",), trusts=folder),
        command("quantize", folder, "--weights", case.rng.choice(("q8", "q4", "bf16")), "--out", "out",
                result="out", trusts=folder, **out),
        command("train", "--init", folder, "--data", seeds.text, "--out", "out", "--steps", "1",
                "--batch", "1", "--context", "8", result="out", **out),
        command("train", "--init", folder, "--data", seeds.text, "--out", "out", "--steps", "1",
                "--batch", "1", "--context", "8", "--lora-rank", "1", result="out", **out),
        command("merge", folder, "--adapter", seeds.adapter, "--out", "out", result="out", **out),
        command("graph", folder, "--phase", case.rng.choice(("decode", "prefill", "eval", "train"))),
        command("bench", "model", folder, "--runs", "1", "--warmup", "0", "--tokens", "2"),
        command("logits", folder, "--ids", seeds.root / "ids.safetensors", "--out", "out.safetensors",
                writes=("out.safetensors",)),
        command("generate", folder, "-p", "The text", "-n", "3", "--output", "json", "--weights", "q8"),
        command("chat", folder, "-p", "Hi", "-n", "2"))


def make_safetensors(case):
    if case.rng.random() < 0.1:
        case.inputs.mkdir()
        shutil.copyfile(case.seeds.root / "ids.safetensors", case.inputs / "ids.safetensors")
        case.rewrite("ids.safetensors", safetensors_mutator.mutate)
        case.add("logits", case.seeds.base, "--ids", "in/ids.safetensors", "--out", "out.safetensors",
                 writes=("out.safetensors",))
        case.add("train", "--data", "in/ids.safetensors", "--vocab", "5", "--out", "out", "--steps",
                 "1", "--layers", "1", "--dim", "16", "--heads", "2", "--val-fraction", "0",
                 writes=("out",), result="out")
        return
    case.copy(case.rng.choice(case.seeds.models))
    if case.rng.random() < 0.05:
        case.replace_file()
    else:
        case.rewrite("model.safetensors", safetensors_mutator.mutate)
    case.add("verify", "in")
    case.add(*READS, trusts="in")
    case.add_some(1, *any_model_commands(case))


def make_gguf(case):
    case.inputs.mkdir()
    shutil.copyfile(case.rng.choice(case.seeds.ggufs), case.inputs / "m.gguf")
    if case.rng.random() < 0.02:
        case.replace_file()
    else:
        case.rewrite("m.gguf", gguf_mutator.mutate)
    file = "in/m.gguf"
    case.add("verify", file)
    case.add("generate", file, "--ids", "0", "-n", "2", trusts=file)
    case.add_some(
        2, command("inspect", file), command("tokenize", file, "The text, 12\n\u00e9"),
        command("convert", file, "out", writes=("out",), result="out"),
        command("convert", file, "out", "--dtype", "bf16", writes=("out",), result="out"),
        command("eval", file, "--data", case.seeds.text), command("graph", file),
        command("chat", file, "-p", "Hi", "--render"), command("chat", file, "-p", "Hi", "-n", "2"),
        command("generate", file, "-p", "a b\n", "-n", "2", "--weights", "q4"))


def make_index(case):
    case.copy(case.rng.choice(case.seeds.indexes))
    roll = case.rng.random()
    if roll < 0.15:
        case.replace_file()
    elif roll < 0.3:
        shards = sorted(path.name for path in case.inputs.glob("*.safetensors"))
        case.rewrite(case.rng.choice(shards), safetensors_mutator.mutate)
    elif roll < 0.35:
        shards = sorted(case.inputs.glob("*.safetensors"))
        shutil.copyfile(case.rng.choice(shards), case.rng.choice(shards).with_suffix(".copy"))
        os.replace(next(case.inputs.glob("*.copy")), case.rng.choice(shards))
    else:
        case.rewrite("model.safetensors.index.json", json_mutator.change_text)
    case.add("verify", "in")
    case.add(*READS, trusts="in")
    case.add_some(1, *any_model_commands(case))


def make_tokenizer(case):
    rng = case.rng
    folders = [folder for folder in case.seeds.models if (folder / "tokenizer.json").is_file()]
    case.copy(rng.choice(folders))
    if rng.random() < 0.7:
        shutil.copyfile(rng.choice(case.seeds.tokenizers), case.inputs / "tokenizer.json")
    if rng.random() < 0.02:
        case.replace_file()
    else:
        case.rewrite("tokenizer.json", tokenizer_mutator.mutate)
    text = tokenizer_mutator.some_text(rng)
    (case.inputs / "text.txt").write_text(text, "utf-8", "surrogatepass")
    case.add("verify", "in")
    case.add("tokenize", "in", "--file", "in/text.txt", trusts="in")
    ids = ",".join(str(rng.choice((0, 1, 2, 3, 5, 100))) for _ in range(rng.choice((1, 5, 40))))
    prompt = text.replace("\0", "")[:1000] or "a"
    case.add_some(
        1, command("tokenize", "in", "--decode", ids), command(*READS, trusts="in"),
        command("generate", "in", "-p", prompt, "-n", "2", "--stop", "a"),
        command("generate", "in", "-p", "a", "-n", "8", "--ignore-eos", "--output", "json"),
        command("convert", "in", "out.gguf", writes=("out.gguf",)),
        command("eval", "in", "--data", "in/text.txt"),
        command("train", "--data", "in/text.txt", "--tokenizer", "in/tokenizer.json", "--out", "out",
                "--steps", "1", "--layers", "1", "--dim", "16", "--heads", "2", "--context", "4",
                writes=("out",), result="out"))


def make_template(case):
    rng, seeds = case.rng, case.seeds
    folders = [folder for folder in seeds.models if (folder / "tokenizer.json").is_file()]
    case.copy(rng.choice(folders))
    template = template_mutator.mutate(rng.choice(seeds.templates).read_bytes(), rng)
    (case.inputs / "messages.json").write_bytes(template_mutator.conversation(rng))
    (case.inputs / "tools.json").write_bytes(json_mutator.change_text(
        b'[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]', rng))
    if rng.random() < 0.7:
        (case.inputs / "chat_template.jinja").write_bytes(template)
    else:
        config = template_mutator.tokenizer_config(template, rng)
        (case.inputs / "tokenizer_config.json").write_bytes(config)
    case.add("verify", "in")
    case.add("chat", "in", "-p", "Hi", "--render")
    case.add_some(1, command("chat", "in", "--messages", "in/messages.json", "--render"),
                  command("chat", "in", "-p", "Hi", "--tools", "in/tools.json", "--render"),
                  command("chat", "in", "-p", "Hi", "-n", "2", "--system", "\u00e9"),
                  command("chat", "in", "-p", "a", "--render", "--output", "json", "--var", "x=[1,2]"))


def make_config(case):
    rng = case.rng
    case.copy(rng.choice(case.seeds.models + case.seeds.indexes))
    name = rng.choice(("config.json", "config.json", "config.json", "generation_config.json",
                       "tokenizer_config.json"))
    if rng.random() < 0.05:
        case.replace_file()
    elif name == "config.json" and rng.random() < 0.1:
        (case.inputs / name).write_bytes(json_mutator.change_text(
            rng.choice(case.seeds.configs).read_bytes(), rng))
    else:
        case.rewrite(name, json_mutator.change_text)
    case.add("verify", "in")
    case.add(*READS, trusts="in")
    case.add("inspect", "in", trusts="in")
    case.add_some(1, *any_model_commands(case))


def make_adapter(case):
    rng, base = case.rng, case.seeds.base
    case.copy(case.seeds.adapter)
    if rng.random() < 0.9:  # Or every change would contradict it.
        (case.inputs / "manifest.json").unlink()
    roll = rng.random()
    if roll < 0.05:
        case.replace_file()
    elif roll < 0.5:
        case.rewrite("adapter_model.safetensors", safetensors_mutator.mutate)
    else:
        case.rewrite("adapter_config.json", json_mutator.change_text)
    case.add("verify", "in")
    case.add("generate", base, "--adapter", "in", "--ids", "1,2", "-n", "2", trusts="in")
    case.add_some(1, command("merge", base, "--adapter", "in", "--out", "out", writes=("out",),
                             result="out"),
                  command("eval", base, "--adapter", "in", "--data", case.seeds.text),
                  command("inspect", "in"), command("generate", "in", "--ids", "1", "-n", "1"))


def make_checkpoint(case):
    rng = case.rng
    case.copy(rng.choice(case.seeds.runs))
    mine = case.inputs / "notes.tmp-2024-11"  # Whatever has such a name is somebody's.
    mine.mkdir()
    (mine / "thesis.txt").write_text("precious")
    files = sorted(path.relative_to(case.inputs) for path in case.inputs.rglob("*") if path.is_file())
    files = [file for file in files if file.name not in ("thesis.txt", "loss.svg")]
    for _ in range(rng.choice((1, 1, 2))):
        file = rng.choice(files)
        if rng.random() < 0.15:
            case.replace_file()
        elif file.suffix == ".safetensors":
            case.rewrite(file, safetensors_mutator.mutate)
        elif file.suffix == ".jsonl":
            case.rewrite(file, json_mutator.change_bytes)
        else:
            case.rewrite(file, json_mutator.change_text)
    case.add("verify", "in")
    # How long a run goes on is written in it.
    case.add("train", "--out", "in", "--resume", writes=("in",), long=True)
    case.add_some(1, command(*READS), command("inspect", "in"),
                  command("generate", case.seeds.base, "--adapter", "in", "--ids", "1", "-n", "1"),
                  command("train", "--init", "in", "--data", case.seeds.text, "--out", "out",
                          "--steps", "1", "--batch", "1", "--context", "8", writes=("out",)))


def make_tuning(case):
    rng, table = case.rng, case.seeds.table
    folder = case.inputs / "matmul_tuning"
    folder.mkdir(parents=True)
    data = table.read_bytes()
    if rng.random() < 0.3:  # More entries than one.
        root = json_mutator.parse(data.decode())
        entries = root.get("entries")
        entries *= rng.choice((2, 50, 5000))
        data = json_mutator.bytes_of(root)
    (folder / table.name).write_bytes(json_mutator.change_text(data, rng))
    shutil.copyfile(folder / table.name, case.inputs / "table.json")
    if rng.random() < 0.03:
        case.replace_file()
    kept = {"VOLTA_CACHE_DIR": str(case.inputs), "VOLTA_TUNING": "on"}
    case.add("tune", "show", environment=kept)
    case.add("tune", "import", "in/table.json", writes=("out",),
             environment={"VOLTA_CACHE_DIR": str(case.folder / "out")})
    case.add_some(1, command("generate", case.seeds.base, "--ids", "1,2", "-n", "2", writes=("in",),
                             environment=kept),
                  command("tune", "export", "out.json", writes=("out.json", "in"), environment=kept),
                  command("train", "--data", case.seeds.text, "--out", "out", "--steps", "1",
                          "--layers", "1", "--dim", "16", "--heads", "2", "--context", "8",
                          writes=("out", "in"), environment=kept))


def make_dataset(case):
    """Conversations or ids, to train on or to validate with."""
    rng, seeds = case.rng, case.seeds
    case.inputs.mkdir()
    ids = rng.random() < 0.15
    name, mutate = ("ids.bin", dataset_mutator.mutate_ids) if ids else (
        "chats.jsonl", dataset_mutator.mutate_chats)
    shutil.copyfile(seeds.root / name, case.inputs / name)
    if rng.random() < 0.03:
        case.replace_file()
    else:
        case.rewrite(name, mutate)
    base = rng.choice(seeds.chat_models)
    small = ("--out", "out", "--batch", "1", "--context", "64", "--val-fraction", "0.1")
    data = case.inputs / name
    # The last evaluation takes all that is for validation.
    long = data.is_file() and data.stat().st_size > 1 << 30
    out = {"writes": ("out",), "result": "out", "long": long}
    case.add("train", "--init", base, "--data", f"in/{name}", "--steps", "1", *small, **out)
    # Passes over all of it compute in proportion to the data: of a small file only.
    passes = () if not data.is_file() or data.stat().st_size > 1 << 15 else (
        command("train", "--init", base, "--data", f"in/{name}", "--epochs", "1",
                *small, **out),
        command("eval", base, "--data", f"in/{name}"))
    case.add_some(
        1, command("train", "--init", base, "--data", seeds.root / name, "--val-data", f"in/{name}",
                   "--steps", "1", *small, **out),
        command("train", "--init", base, "--data", f"in/{name}", "--data", seeds.root / name,
                "--steps", "2", "--tensorboard", "--lora-rank", "1", *small, **out),
        command("train", "--data", f"in/{name}", "--vocab", "5", "--steps", "1", "--layers", "1",
                "--dim", "16", "--heads", "2", *small, **out),
        *passes)


KINDS = {"safetensors": make_safetensors, "gguf": make_gguf, "index": make_index,
         "tokenizer": make_tokenizer, "template": make_template, "config": make_config,
         "adapter": make_adapter, "checkpoint": make_checkpoint, "tuning": make_tuning,
         "dataset": make_dataset}
