"""The tokenizers of runs that Volta trained, opened by transformers.

    python tests/interop/run_tokenizers.py VOLTA_BINARY TEXT_FILE

Trains a run of one step with each of Volta's tokenizers on a text, opens its checkpoint with
AutoTokenizer and compares the ids and the decoded text of the whole file with Volta's. Neither may
know a token beyond the model's embedding. Ends with 1 when anything differs, with 77 (skipped)
without transformers.
"""
import json
import pathlib
import sys
import tempfile

import common

transformers = common.need("transformers")

LLAMA = ["--position", "rotary", "--norm", "rms", "--ffn-kind", "gated", "--activation", "silu"]


def train(volta, work, name, tokenizer, more):
    sizes = ["--layers", 1, "--heads", 2, "--dim", 16, "--context", 32, "--batch", 2, "--steps", 1,
             "--warmup", 0, "--eval-every", 0]
    return pathlib.Path(volta.json("train", "--data", sys.argv[2], "--out", work / name,
                                   "--tokenizer", tokenizer, *sizes, *more)["checkpoint"])


def problems(volta, folder, text):
    with open(folder / "config.json") as file:
        vocab = json.load(file)["vocab_size"]
    ids = volta.json("tokenize", folder, "--file", sys.argv[2])["ids"]
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    if theirs(text)["input_ids"] != ids:
        yield "other ids"
    if theirs.decode(ids) != text:
        yield "another text"
    if len(theirs) != vocab:
        yield f"{len(theirs)} tokens, the embedding has {vocab}"
    if theirs.eos_token is not None and theirs.eos_token_id >= vocab:
        yield f"the end token {theirs.eos_token} has no embedding"
    if theirs.model_max_length != 32:
        yield f"model_max_length is {theirs.model_max_length}"


def main():
    transformers.logging.set_verbosity_error()
    with open(sys.argv[2], encoding="utf-8", newline="") as file:
        text = file.read()
    report = common.Report()
    volta = common.Volta(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        volta.run("tokenizer", "train", "--data", sys.argv[2], "--vocab", 400, "--out", work / "bpe")
        for tokenizer in ("char", "byte", work / "bpe" / "tokenizer.json"):
            for family, more in (("gpt2", []), ("llama", LLAMA)):
                name = f"{pathlib.Path(tokenizer).parent.name or tokenizer}-{family}"
                found = list(problems(volta, train(volta, work, name, tokenizer, more), text))
                report.holds(name, not found, "; ".join(found))
    sys.exit(report.failed)


main()
