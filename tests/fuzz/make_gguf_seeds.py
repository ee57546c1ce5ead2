#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/gguf: the smallest models and tokenizers of every kind that Volta reads.

    pip install gguf==0.19.0 numpy
"""
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import quantize

SEEDS = pathlib.Path(__file__).parent / "corpus" / "gguf"


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_model(name, arch, add_tokenizer=None, factors=None):
    writer = gguf.GGUFWriter(SEEDS / f"{name}.gguf", arch)
    for add in (writer.add_context_length, writer.add_embedding_length, writer.add_feed_forward_length):
        add(8)
    writer.add_block_count(1)
    writer.add_head_count(2)
    half = {"attn_output": (8, 8), "ffn_up": (8, 8), "ffn_down": (8, 8)}
    full = {"output_norm.weight": (8,), "blk.0.attn_norm.weight": (8,), "blk.0.ffn_norm.weight": (8,)}
    if arch == "gpt2":
        writer.add_layer_norm_eps(1e-5)
        half |= {"attn_qkv": (24, 8)}
        full |= {"position_embd.weight": (8, 8), "output_norm.bias": (8,), "blk.0.attn_norm.bias": (8,),
                 "blk.0.ffn_norm.bias": (8,)} | {f"blk.0.{n}.bias": s[:1] for n, s in half.items()}
    else:
        writer.add_head_count_kv(1)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_rope_freq_base(10000.0)
        half |= {"attn_q": (8, 8), "attn_k": (4, 8), "attn_v": (4, 8), "ffn_gate": (8, 8)}
    if add_tokenizer:
        add_tokenizer(writer)
    writer.add_tensor("token_embd.weight", np.ones((6, 8), np.float16))
    for tensor, shape in half.items():
        writer.add_tensor(f"blk.0.{tensor}.weight", np.ones(shape, np.float16))
    for tensor, shape in full.items():
        writer.add_tensor(tensor, np.ones(shape, np.float32))
    if factors:
        writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))
    finish(writer)


def sentence_piece(writer):
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "\u2581", "a", "b", "ab"])
    writer.add_token_scores([0.0, 0.0, -3.0, -3.0, -3.0, -1.0])
    writer.add_token_types([2, 3, 1, 1, 1, 1])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(1)


def byte_level(writer):
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(["<s>", "a", "b", "ab", "\u0120", "c"])
    writer.add_token_types([3, 1, 1, 1, 1, 4])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(True)


def write_types():
    writer = gguf.GGUFWriter(SEEDS / "types.gguf", "none")
    for kind in (Type.Q8_0, Type.Q4_0, Type.Q4_1):
        writer.add_tensor(kind.name, quantize(np.ones((1, 32), np.float32), kind), raw_dtype=kind)
    for kind in (Type.Q5_0, Type.Q5_1, Type.Q4_K, Type.Q5_K, Type.Q6_K):
        size = gguf.GGML_QUANT_SIZES[kind][1]
        writer.add_tensor(kind.name, np.zeros((1, size), np.uint8), raw_dtype=kind)
    writer.add_array("list", [1, 2, 3])
    writer.add_bool("flag", True)
    writer.add_float64("number", 1.0)
    writer.add_int8("small", -1)
    finish(writer)


SEEDS.mkdir(parents=True, exist_ok=True)
write_model("llama", "llama", sentence_piece)
write_model("llama3", "llama", byte_level, factors=[1.0, 8.0])
write_model("gpt2", "gpt2")
write_model("qwen2", "qwen2", byte_level)
write_types()
(SEEDS / "empty.gguf").write_bytes(b"GGUF" + bytes([3, 0, 0, 0]) + bytes(16))
