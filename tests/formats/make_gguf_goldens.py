#!/usr/bin/env python3
"""Writes tests/formats/data/gguf_*: small GGUF files by the gguf package, and what others make of them:
its own dequantisation, transformers' logits and greedy ids, SentencePiece's and tokenizers' ids.

    pip install gguf==0.19.0 sentencepiece transformers==5.23.0 tokenizers==0.23.3 torch numpy
    tests/formats/make_gguf_goldens.py TEXT    # any text to train tokenizers on, e.g. README.md
"""
import io
import json
import pathlib
import sys

import gguf
import numpy as np
import sentencepiece
import torch
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM

DATA = pathlib.Path(__file__).parent / "data"
TEXTS = [
    "", " ", "Hello, world!", "  leading and trailing  ", "I'll say we've, they'd; don't SHOUT'S",
    "na\u00efve caf\u00e9 e\u0301 \u212b", "\u4f60\u597d\uff0c\u4e16\u754c", "tabs\tand\n\nnewlines\r\n x",
    "1234567 3.14 \u00bd", "<s>inside</s> <|end|>text <tool> x", "\U0001f389 a\u00a0b", "the runtime of the model",
]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOCKS = [Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q4_K,
          Type.Q5_K, Type.Q6_K]
# Where the halves lie that scale a block, so that random bytes are finite numbers.
HALVES = {Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2],
          Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208]}


def write_types(rng):
    """Random blocks of every type beside their values, and values beside their blocks."""
    writer = gguf.GGUFWriter(DATA / "gguf_types.gguf", "none")
    for kind in BLOCKS:
        values, size = gguf.GGML_QUANT_SIZES[kind]
        if values == 1:
            halves = rng.standard_normal(64).astype(np.float32)
            raw = quantize(halves.reshape(2, 32), kind)
        else:
            raw = rng.integers(0, 256, (2, 2 * size), dtype=np.uint8)
            for block in range(2):
                for at in HALVES[kind]:
                    half = rng.standard_normal(2).astype(np.float16) * np.float16(0.01)
                    raw[:, block * size + at:block * size + at + 2] = half.view(np.uint8).reshape(2, 2)
        writer.add_tensor(f"read.{kind.name}", raw, raw_dtype=kind)
        writer.add_tensor(f"read.{kind.name}.values", dequantize(raw, kind).astype(np.float32))
    source = (rng.standard_normal((4, 64)) * np.exp(rng.standard_normal((4, 64)))).astype(np.float32)
    source[1] = 0
    source[2, ::2] = 0.5  # Ties.
    source[3] = -np.abs(source[3])
    writer.add_tensor("write", source)
    for kind in [Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1]:
        writer.add_tensor(f"write.{kind.name}", quantize(source, kind), raw_dtype=kind)
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sentence_piece(text):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.splitlines()), model_writer=out, vocab_size=340,
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, character_coverage=0.98, minloglevel=2,
        user_defined_symbols=["<tool>"])
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    tokens = [model.id_to_piece(i) for i in range(len(model))]
    kinds = [2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i)
             else 4 if t == "<tool>" else 1 for i, t in enumerate(tokens)]
    return model, tokens, [model.get_score(i) for i in range(len(model))], kinds


def byte_level(text):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(text.splitlines(True), trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<|end|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


def byte_level_ids(vocab, merges):
    """Ids of every text under every way to split, by the parts that a tokenizer.json would have."""
    def split(pattern):
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    kinds = {"gpt-2": (gpt2, False, False), "smollm": (digits, False, False),
             "llama-bpe": (split(LLAMA3), True, False), "qwen2": (split(QWEN2), False, True),
             "tekken": (split(TEKKEN), True, False)}
    ids = {}
    for name, (pre, whole, nfc) in kinds.items():
        tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=whole))
        tokenizer.pre_tokenizer = pre
        if nfc:
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.add_special_tokens([AddedToken("<|end|>", normalized=False, special=True)])
        ids[name] = [tokenizer.encode(t, add_special_tokens=False).ids for t in TEXTS]
    return ids


def add_tensors(writer, arch, rng, vocab, dim, heads, kv, head, ffn, layers, kind, context):
    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns)) * 0.3).astype(np.float32)

    def add(name, values, to=Type.F32):
        writer.add_tensor(name, quantize(values, to), raw_dtype=to)

    def vector(name, size, around):
        add(name, (around + 0.1 * rng.standard_normal(size)).astype(np.float32))

    add("token_embd.weight", matrix(vocab, dim), Type.Q8_0)
    gpt2 = arch == "gpt2"
    if gpt2:
        add("position_embd.weight", matrix(context, dim))
    for b in range(layers):
        p = f"blk.{b}."
        shapes = {"attn_q": (heads * head, dim), "attn_k": (kv * head, dim), "attn_v": (kv * head, dim),
                  "attn_output": (dim, heads * head), "ffn_gate": (ffn, dim), "ffn_up": (ffn, dim),
                  "ffn_down": (dim, ffn)}
        if gpt2:
            shapes = {"attn_qkv": (3 * dim, dim), "attn_output": (dim, dim), "ffn_up": (ffn, dim),
                      "ffn_down": (dim, ffn)}
        for name, shape in shapes.items():
            add(f"{p}{name}.weight", matrix(*shape), kind)
            if gpt2 or (arch == "qwen2" and name in ("attn_q", "attn_k", "attn_v")):
                vector(f"{p}{name}.bias", shape[0], 0)
        for name in ("attn_norm", "ffn_norm"):
            vector(f"{p}{name}.weight", dim, 1)
            if gpt2:
                vector(f"{p}{name}.bias", dim, 0)
        if arch == "qwen3":
            vector(f"{p}attn_q_norm.weight", head, 1)
            vector(f"{p}attn_k_norm.weight", head, 1)
    vector("output_norm.weight", dim, 1)
    if gpt2:
        vector("output_norm.bias", dim, 0)
    if arch == "llama":
        add("output.weight", matrix(vocab, dim), Type.F16)


def write_model(name, arch, rng, kind, add_tokenizer=None, vocab=48, head=16, **extra):
    sizes = dict(dim=32, heads=2, kv=1, ffn=64, layers=1, context=32)
    if arch == "gpt2":
        sizes["kv"] = 2
    writer = gguf.GGUFWriter(DATA / f"gguf_{name}.gguf", arch)
    writer.add_context_length(sizes["context"])
    writer.add_embedding_length(sizes["dim"])
    writer.add_block_count(sizes["layers"])
    writer.add_feed_forward_length(sizes["ffn"])
    writer.add_head_count(sizes["heads"])
    if arch == "gpt2":
        writer.add_layer_norm_eps(1e-5)
    else:
        writer.add_head_count_kv(sizes["kv"])
        writer.add_key_length(head)
        writer.add_value_length(head)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_rope_dimension_count(head)
        writer.add_rope_freq_base(500000.0)
    if add_tokenizer:
        add_tokenizer(writer)
    add_tensors(writer, arch, rng, vocab, head=head, kind=kind, **sizes)
    if "extra_tensors" in extra:
        for tensor, values in extra["extra_tensors"].items():
            writer.add_tensor(tensor, values)
    finish(writer)
    # transformers does not read every key of the metadata; the rest is said here.
    config = AutoConfig.for_model(
        arch, vocab_size=vocab, tie_word_embeddings=arch != "llama",
        **(dict(n_positions=32, n_embd=32, n_layer=1, n_head=2, n_inner=64) if arch == "gpt2" else
           dict(max_position_embeddings=32, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                num_key_value_heads=1, head_dim=head, intermediate_size=64, rms_norm_eps=1e-6,
                rope_parameters=extra.get("rope", {"rope_type": "default", "rope_theta": 500000.0}))))
    model = AutoModelForCausalLM.from_pretrained(
        DATA, gguf_file=f"gguf_{name}.gguf", config=config, dtype=torch.float32).eval()
    ids = [3, 1, 4, 15, 9, 2, 6]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
        grown = list(ids)
        for _ in range(8):
            grown.append(int(model(torch.tensor([grown])).logits[0, -1].argmax()))
    return {"ids": ids, "logits": [round(float(x), 6) for x in logits[-1]], "greedy": grown}


def main():
    rng = np.random.default_rng(1)
    text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    write_types(rng)
    pieces, tokens, scores, kinds = sentence_piece(text)
    vocab, merges = byte_level(text)

    def add_llama(writer):
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(tokens)
        writer.add_token_scores(scores)
        writer.add_token_types(kinds)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_chat_template("{{ messages[0]['content'] }}")

    def add_gpt2(writer):
        listed = sorted(vocab, key=vocab.get)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(listed)
        writer.add_token_types([3 if t == "<|end|>" else 1 for t in listed])
        writer.add_token_merges([" ".join(m) for m in merges])
        writer.add_eos_token_id(vocab["<|end|>"])
        writer.add_add_bos_token(False)

    goldens = {
        "texts": TEXTS,
        "llama": write_model("llama", "llama", rng, Type.Q8_0, add_llama, vocab=len(tokens)),
        "qwen2": write_model("qwen2", "qwen2", rng, Type.Q4_1, add_gpt2, vocab=len(vocab)),
        "qwen3": write_model("qwen3", "qwen3", rng, Type.BF16, head=32),
        "gpt2": write_model("gpt2", "gpt2", rng, Type.F16),
        "sentencepiece": [pieces.encode(t.replace("<s>", "").replace("</s>", "")) for t in TEXTS],
        "byte_level": byte_level_ids(vocab, merges),
    }
    with open(DATA / "gguf_goldens.json", "w", encoding="utf-8") as out:
        json.dump(goldens, out, indent=None, ensure_ascii=True)
        out.write("\n")


main()
