"""Writes tests/formats/data/rope_goldens.json: frequencies and attention factors of transformers.

    python tests/formats/make_rope_goldens.py   (made with transformers 5.23.0, torch 2.x)

Each case: the keys of a config.json, and by length of the sequence the frequencies as hexadecimal
bits of f32.
"""

import json
import os
import struct

import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

SHAPE = {
    "model_type": "llama",
    "vocab_size": 11,
    "hidden_size": 64,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
LLAMA3 = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32768}
CASES = {
    "default": (2048, {"rope_type": "default", "rope_theta": 10000.0}, 64),
    "default_theta": (2048, {"rope_type": "default", "rope_theta": 1000000.0}, 128),
    "linear": (2048, {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}, 32),
    "dynamic": (64, {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}, 16),
    "dynamic_odd_factor": (48, {"rope_type": "dynamic", "factor": 1.3, "rope_theta": 500000.0}, 32),
    "llama3": (
        131072,
        {"rope_type": "llama3", "rope_theta": 500000.0, "original_max_position_embeddings": 8192,
         **LLAMA3},
        64,
    ),
    "llama3_other": (
        4096,
        {"rope_type": "llama3", "rope_theta": 10000.0, "original_max_position_embeddings": 512,
         "factor": 3.0, "low_freq_factor": 2.0, "high_freq_factor": 9.0},
        32,
    ),
    "yarn": (32768, {"rope_type": "yarn", "rope_theta": 1000000.0, **YARN}, 128),
    "yarn_not_truncated": (
        32768, {"rope_type": "yarn", "rope_theta": 10000.0, "truncate": False, **YARN}, 64),
    "yarn_betas": (
        32768,
        {"rope_type": "yarn", "rope_theta": 150000.0, "beta_fast": 20.0, "beta_slow": 3.0, **YARN},
        32,
    ),
    "yarn_attention_factor": (
        32768, {"rope_type": "yarn", "rope_theta": 10000.0, "attention_factor": 1.5, **YARN}, 16),
    "yarn_mscales": (
        32768,
        {"rope_type": "yarn", "rope_theta": 10000.0, "mscale": 0.7, "mscale_all_dim": 1.4, **YARN},
        16,
    ),
    "yarn_one_mscale": (
        32768, {"rope_type": "yarn", "rope_theta": 10000.0, "mscale": 0.7, **YARN}, 16),
    "yarn_no_ramp": (
        64,
        {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0,
         "original_max_position_embeddings": 4},
        16,
    ),
}


def bits(value):
    return struct.pack(">f", value).hex()


def case(name, longest, rope, head_dim):
    keys = {**SHAPE, "max_position_embeddings": longest, "head_dim": head_dim,
            "rope_parameters": rope}
    config = transformers.LlamaConfig(**json.loads(json.dumps(keys)))
    lengths = [longest]
    if rope["rope_type"] == "dynamic":
        lengths = [3, longest, longest + 1, longest + 29, int(longest * rope["factor"])]
    out = {"name": name, "config": keys, "frequencies": {}}
    for length in lengths:
        table = LlamaRotaryEmbedding(config)
        table(torch.zeros(1), torch.arange(length)[None])
        out["frequencies"][str(length)] = "".join(bits(x) for x in table.inv_freq.tolist())
        out["attention_factor"] = float(table.attention_scaling)
    return out


def main():
    transformers.logging.set_verbosity_error()
    path = os.path.join(os.path.dirname(__file__), "data", "rope_goldens.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        cases = [json.dumps(case(name, *rest)) for name, rest in CASES.items()]
        file.write("[\n" + ",\n".join(cases) + "\n]\n")


if __name__ == "__main__":
    main()
