#!/usr/bin/env python3
"""Mutators take whatever mutators have made: mutants of mutants of mutants, of every format. A flaw
of a mutator's would otherwise be reported as a finding, and its attack would not take place."""
import random
import struct
import sys
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import dataset_mutator  # noqa: E402
import gguf_mutator  # noqa: E402
import json_mutator  # noqa: E402
import safetensors_mutator  # noqa: E402
import template_mutator  # noqa: E402
import tokenizer_mutator  # noqa: E402

TESTS = HERE.parent
CHAINS, LENGTH = 150, 4


def files(pattern):
    return [path.read_bytes() for path in sorted(TESTS.glob(pattern))]


def nested(depth):
    """JSON that Python can read, but not write."""
    return b'{"a":' * depth + b"1" + b"}" * depth


def header_of(text):
    return struct.pack("<Q", len(text)) + text


TENSORS = safetensors_mutator.write({"a": ("F32", [2, 3], bytes(24)), "b": ("I64", [1], bytes(8))},
                                    {"format": "pt"})
CASES = (
    (json_mutator.change_text, files("fuzz/corpus/config/*.json") + [nested(700)]),
    (safetensors_mutator.mutate,
     [TENSORS, header_of(nested(700)), header_of(b"[1]"), header_of(b'{"a":[]}')]),
    (tokenizer_mutator.mutate,
     files("text/data/*_tokenizer.json") + files("fuzz/corpus/tokenizer/*.json") + [
         nested(700), b'{"added_tokens":{"a":1},"model":{"vocab":{"a":0},"merges":{"a":1}}}',
         b'{"added_tokens":[1],"model":{"type":"Unigram","vocab":["a",["b",1],{"c":2}],"merges":"x"}}']),
    (template_mutator.mutate, files("fuzz/corpus/chat_template/*.jinja")),
    (dataset_mutator.mutate_chats, files("train/data/*/chats.jsonl")),
    (dataset_mutator.mutate_ids, [bytes(800), b""]),
    (gguf_mutator.mutate, files("fuzz/corpus/gguf/*.gguf")),
)


def main():
    count = 0
    for mutate, seeds in CASES:
        if not seeds:
            raise SystemExit(f"no seeds for {mutate.__module__}")
        for chain in range(CHAINS):
            rng = random.Random(f"{mutate.__module__}/{chain}")
            data = seeds[chain % len(seeds)]
            for _ in range(LENGTH):
                data = mutate(data, rng)
                if not isinstance(data, bytes):
                    raise SystemExit(f"{mutate.__module__}: chain {chain} made no bytes")
                data = data[:1 << 20]
                count += 1
    print(f"{count} mutants")


if __name__ == "__main__":
    main()
