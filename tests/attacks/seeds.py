"""Small valid files of every kind, made by the program itself from what the tests hold."""
import json
import os
import shutil
import struct
from pathlib import Path

import safetensors_mutator
from program import Limits

TESTS = Path(__file__).resolve().parent.parent
SENTENCE = "The licence of this text is that everybody may read it. One two three four five.\n"
SMALL_RUN = ("--steps", "4", "--save-every", "2", "--eval-every", "2", "--eval-batches", "1", "--layers",
             "1", "--heads", "2", "--dim", "16", "--context", "16", "--batch", "2", "--norm", "rms",
             "--ffn-kind", "gated", "--activation", "silu", "--position", "rotary", "--untied")


def shared_models():
    folder = Path(os.environ.get("VOLTA_SHARED") or TESTS.parent.parent / "shared") / "models"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def copy_model(source, target):
    target.mkdir()
    for file in source.iterdir():
        if "golden" not in file.name:
            shutil.copyfile(file, target / file.name)


def shard(folder, pieces=3):
    """Cuts a folder's model.safetensors into shards with an index."""
    header, body = safetensors_mutator.split((folder / "model.safetensors").read_bytes())
    tensors = {}
    for name, entry in header:
        if name != "__metadata__":
            begin, end = (int(n) for n in entry.get("data_offsets"))
            shape = [int(n) for n in entry.get("shape")]
            tensors[name] = (entry.get("dtype"), shape, body[begin:end])
    names, lines = sorted(tensors), []
    for i in range(pieces):
        file = f"model-{i + 1:05}-of-{pieces:05}.safetensors"
        part = names[i::pieces]
        (folder / file).write_bytes(safetensors_mutator.write({n: tensors[n] for n in part}))
        lines += [f'"{name}":"{file}"' for name in part]
    size = sum(len(data) for _, _, data in tensors.values())
    (folder / "model.safetensors.index.json").write_text(
        '{"metadata":{"total_size":%d},"weight_map":{%s}}' % (size, ",".join(lines)))
    (folder / "model.safetensors").unlink()


class Seeds:
    """Folders and files below `root`: model/*, gguf/*, index/*, adapter, run, table.json, ..."""

    def __init__(self, program, root, more=None):
        """`more`: a folder of further tokenizer.json and .jinja files to start from."""
        self.root = Path(root)
        self.program = program
        for name in ("model", "gguf", "index"):
            (self.root / name).mkdir(parents=True)
        self.text = self.root / "text.txt"
        self.text.write_text(SENTENCE * 20)
        self.make_models()
        self.make_runs()
        self.make_table()
        self.make_datasets()
        ids = struct.pack("<34q", *(i % 5 for i in range(34)))
        (self.root / "ids.safetensors").write_bytes(
            safetensors_mutator.write({"input_ids": ("I64", [2, 17], ids)}))
        self.models = sorted((self.root / "model").iterdir())
        self.ggufs = sorted((self.root / "gguf").iterdir())
        self.indexes = sorted((self.root / "index").iterdir())
        self.tokenizers = sorted(TESTS.glob("text/data/*_tokenizer.json")) + sorted(
            TESTS.glob("fuzz/corpus/tokenizer/*.json"))
        self.templates = sorted(TESTS.glob("fuzz/corpus/chat_template/*.jinja"))
        if more:
            self.tokenizers += [file for file in sorted(Path(more).glob("*.json"))
                                if b'"model"' in file.read_bytes()]
            self.templates += sorted(Path(more).glob("*.jinja"))
        self.configs = sorted(TESTS.glob("fuzz/corpus/config/*.json"))

    def volta(self, *arguments, **environment):
        words = [str(word) for word in arguments]
        done = self.program.run(words, str(self.root), Limits(60, 4 << 30), environment)
        if done.code != 0:
            raise SystemExit(f"cannot make the seeds: volta {' '.join(words)}: {done.last_line()}")

    def make_models(self):
        for file in sorted(TESTS.glob("formats/data/gguf_*.gguf")) + sorted(
                TESTS.glob("fuzz/corpus/gguf/*.gguf")):
            shutil.copyfile(file, self.root / "gguf" / file.name)
            if file.stem.split("_")[-1] not in ("types", "empty"):
                self.volta("convert", file, self.root / "model" / file.stem)
        for folder in shared_models():
            copy_model(folder, self.root / ("index" if "sharded" in folder.name else "model") /
                       folder.name)
        for name in ("llama", "gguf_qwen2"):
            copy_model(self.root / "model" / name, self.root / "index" / name)
            shard(self.root / "index" / name)

    def make_runs(self):
        run, adapter = self.root / "run", self.root / "adapter_run"
        self.volta("train", "--data", self.text, "--out", run, "--keep", "0", *SMALL_RUN)
        copy_model(run / "step-4", self.root / "model" / "trained")
        self.base = self.root / "model" / "trained"
        self.volta("train", "--init", self.base, "--data", self.text, "--out", adapter, "--steps", "4",
                   "--save-every", "2", "--lora-rank", "2", "--batch", "1", "--context", "8", "--keep",
                   "0")
        self.volta("convert", self.base, self.root / "gguf" / "trained.gguf")
        self.volta("quantize", self.base, "--weights", "q8", "--out", self.root / "model" / "q8")
        self.volta("quantize", self.base, "--weights", "q4", "--out", self.root / "model" / "q4")
        self.adapter = adapter / "step-4"
        for folder in (run, adapter):  # Neither has ended.
            shutil.copytree(folder / "step-4", self.root / f"whole_{folder.name}")
            shutil.rmtree(folder / "step-4")
        self.adapter = self.root / "whole_adapter_run"
        self.runs = [run, adapter]

    def make_datasets(self):
        """Conversations, models with several templates for them, and ids as 16-bit numbers."""
        source = TESTS / "train" / "data" / "chat_llama"
        shutil.copyfile(source / "chats.jsonl", self.root / "chats.jsonl")
        templates = sorted(TESTS.glob("fuzz/corpus/chat_template/*.jinja"))
        self.chat_models = []
        for template in [source / "chat_template.jinja"] + templates:
            folder = self.root / f"chat_{len(self.chat_models)}"
            copy_model(source, folder)
            shutil.copyfile(template, folder / "chat_template.jinja")
            config = json.loads((folder / "tokenizer_config.json").read_text())
            config.setdefault("bos_token", config["eos_token"])  # Some templates begin with it.
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            self.chat_models.append(folder)
        (self.root / "ids.bin").write_bytes(struct.pack("<400H", *(i % 5 for i in range(400))))

    def make_table(self):
        cache = self.root / "cache"
        self.volta("tune", "matmul", "--dim", "16", "--budget", "0.1", "--runs", "1",
                   VOLTA_CACHE_DIR=str(cache))
        (self.table,) = (cache / "matmul_tuning").glob("*.json")
