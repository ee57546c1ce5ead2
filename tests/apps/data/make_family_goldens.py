"""Writes families/TYPE: a tiny random model of each family, and what transformers computes with it.

    python make_family_goldens.py [TYPE ...]

Each folder has config.json and model.safetensors (bf16) as transformers saves them, golden.safetensors
with ids [2, T] and their logits, and golden_tokens.json with prompts and their greedy continuations;
everything computed in f32 with eager attention. Made with torch 2.15 and transformers 5.23; starcoder2
with 5.24.
"""

import json
import pathlib
import shutil
import sys

import safetensors.torch
import torch
import transformers

VOCAB, TIME, CLOSEST = 97, 24, 1e-2  # The two largest logits of a greedy step are further apart.
COMMON = dict(
    vocab_size=VOCAB, hidden_size=24, intermediate_size=32, num_attention_heads=2,
    num_key_value_heads=1, max_position_embeddings=48, rms_norm_eps=1e-5,
    bos_token_id=None, eos_token_id=None, pad_token_id=None,
)
# Of each family: its options, and the prompts' lengths with the number of tokens that follow.
FAMILIES = {
    "olmo2": (dict(num_hidden_layers=2, num_key_value_heads=2, tie_word_embeddings=False), [(9, 16)]),
    # The fourth layer does not rotate.
    "smollm3": (dict(num_hidden_layers=4), [(9, 16)]),
    # transformers rotates everything again when a sequence grows past the original 16 tokens, Volta
    # leaves what it holds: one prompt stays below, one begins above.
    "phi3": (
        dict(
            num_hidden_layers=2, original_max_position_embeddings=16, tie_word_embeddings=False,
            rope_parameters=dict(
                rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.5,
                original_max_position_embeddings=16,
                short_factor=[1.0, 1.1, 1.25], long_factor=[1.5, 2.5, 4.0],
            ),
        ),
        [(7, 8), (18, 12)],
    ),
    # Every second layer has the window; heads are wider than a share of the width.
    "gemma2": (
        dict(num_hidden_layers=3, head_dim=16, sliding_window=6, query_pre_attn_scalar=16,
             attn_logit_softcapping=2.0, final_logit_softcapping=3.0), [(9, 16)],
    ),
    # Every sixth layer has none, and a base of its own.
    "gemma3_text": (
        dict(num_hidden_layers=6, head_dim=8, sliding_window=6, query_pre_attn_scalar=8,
             rope_parameters=dict(
                 full_attention=dict(rope_type="linear", factor=4.0, rope_theta=1000000.0),
                 sliding_attention=dict(rope_type="default", rope_theta=10000.0))), [(9, 16)],
    ),
    # Numbers that differ much from those of Llama, so that each of them matters.
    "granite": (
        dict(num_hidden_layers=3, tie_word_embeddings=True, attention_bias=True, embedding_multiplier=1.5,
             attention_multiplier=0.2, residual_multiplier=0.6, logits_scaling=0.7), [(9, 16)],
    ),
    # Layer norms, and a feed-forward block without a gate. (GGUF files have no windows.)
    "starcoder2": (dict(num_hidden_layers=2, norm_epsilon=1e-2, use_bias=True), [(9, 16)]),
}


def enliven(model, generator):
    """Weights with which every part of the model matters."""
    around_zero = model.config.model_type.startswith("gemma")
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = torch.randn(value.shape, generator=generator)
            if value.dim() >= 2:
                value.copy_(noise * (0.7 if "embed" in name else 1.3 / value.shape[1] ** 0.5))
            else:
                value.copy_(noise * 0.2 + (0.0 if around_zero else 1.0))


def greedy(model, prompt, count):
    """The continuation; None where a step was close."""
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count,
        pad_token_id=0, return_dict_in_generate=True, output_logits=True,
    )
    for logits in out.logits:
        top = logits[0].topk(2).values
        if top[0] - top[1] < CLOSEST:
            return None
    return out.sequences[0, len(prompt):].tolist()


def make(folder, family, seed):
    options, lengths = FAMILIES[family]
    generator = torch.Generator().manual_seed(seed)
    config = transformers.AutoConfig.for_model(family, **{**COMMON, **options})
    model = transformers.AutoModelForCausalLM.from_config(config)
    enliven(model, generator)
    model.generation_config.eos_token_id = None
    shutil.rmtree(folder, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    cases = []
    for length, count in lengths:
        prompt = torch.randint(VOCAB, (length,), generator=generator).tolist()
        cases.append({"prompt": prompt, "tokens": greedy(model, prompt, count)})
    if any(case["tokens"] is None for case in cases):
        return False
    ids = torch.randint(VOCAB, (2, TIME), generator=generator)
    with torch.no_grad():
        logits = model(ids).logits.contiguous()
    safetensors.torch.save_file({"input_ids": ids, "logits": logits}, folder / "golden.safetensors")
    (folder / "golden_tokens.json").write_text(json.dumps(cases) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    return True


def main():
    transformers.logging.set_verbosity_error()
    for family in sys.argv[1:] or FAMILIES:
        folder = pathlib.Path(__file__).parent / "families" / family
        seed = next(seed for seed in range(100) if make(folder, family, seed))
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{folder}: seed {seed}, {size} bytes")


main()
