"""Compares Volta with transformers on small random models, both ways.

Makes models over the families, their options, the kinds of rotary scaling, the types of weights and
the old and new keys of config.json; saves them with transformers; compares the logits of
`volta logits` and the greedy tokens of `volta generate`. Then trains some of them a few steps with
`volta train` and opens what Volta wrote in transformers.

    python tests/interop/interop.py --volta build/release/volta [--models 90] [--seed 1]

Ends with 0 when all agree, 1 when something does not, 77 (skipped) without torch or transformers.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile

import common

torch, transformers = common.need("torch", "transformers")
from safetensors.torch import save_file  # noqa: E402 (transformers brings it along)

TOLERANCE = 1e-4  # Of a row's largest |logit|.
NEW_TOKENS = 24
FAMILIES = ["gpt2", "llama", "mistral", "ministral", "qwen2", "qwen3", "olmo2", "smollm3", "phi3",
            "gemma2", "gemma3_text", "granite", "starcoder2"]
ROPE_KINDS = ["default", "linear", "dynamic", "llama3", "yarn"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ACTIVATIONS = ["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "relu", "silu"]


def gpt2_options(rng):
    heads = rng.choice([1, 2, 4])
    options = dict(
        n_embd=heads * rng.choice([4, 8, 16]),
        n_head=heads,
        n_layer=rng.choice([1, 2, 3]),
        n_positions=96,
        n_inner=rng.choice([None, 24, 100]),
        activation_function=rng.choice(ACTIVATIONS),
        scale_attn_weights=rng.random() < 0.7,
        scale_attn_by_inverse_layer_idx=rng.random() < 0.4,
        layer_norm_epsilon=rng.choice([1e-5, 1e-6]),
    )
    return options, 96


def rope_options(rng, kind, theta):
    rope = {"rope_type": kind, "rope_theta": theta}
    if kind != "default":
        rope["factor"] = rng.choice([1.5, 2.0, 4.0, 8.0])
    if kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=rng.choice([2.0, 4.0]))
    if kind in ("llama3", "yarn"):
        rope["original_max_position_embeddings"] = rng.choice([16, 32, 50])
    if kind == "yarn":
        optional = [
            ("beta_fast", 16.0),
            ("beta_slow", 2.0),
            ("attention_factor", 1.25),
            ("truncate", False),
            ("mscale", 0.7),
            ("mscale_all_dim", 1.3),
        ]
        for key, value in optional:
            if rng.random() < 0.3:
                rope[key] = value
    return rope


def windows(rng, family, layers):
    if family == "mistral":
        return dict(sliding_window=rng.choice([None, 5, 9]))
    if family == "ministral":
        types = [rng.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
        return dict(sliding_window=7, layer_types=types)
    if family in ("qwen2", "qwen3"):
        how = rng.choice(["none", "front", "types"])
        if how == "front":
            return dict(
                use_sliding_window=True, sliding_window=6, max_window_layers=rng.randrange(layers)
            )
        if how == "types":
            types = [rng.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
            return dict(use_sliding_window=True, sliding_window=6, layer_types=types)
    if family == "smollm3":
        return dict(use_sliding_window=True, sliding_window=6) if rng.random() < 0.5 else {}
    if family in ("phi3", "starcoder2"):
        return dict(sliding_window=rng.choice([None, 7]))
    if family.startswith("gemma"):
        return dict(sliding_window=rng.choice([5, 9]))
    return {}


def gemma_options(rng, family):
    options = dict(query_pre_attn_scalar=rng.choice([8, 11]), hidden_activation="gelu_pytorch_tanh")
    if family == "gemma2":
        options["attn_logit_softcapping"] = rng.choice([None, 3.0, 50.0])
    options["final_logit_softcapping"] = rng.choice([None, 4.0, 30.0])
    return options


def smollm3_options(rng, layers):
    if rng.random() < 0.5 and layers > 1:
        return dict(no_rope_layers=[i % 2 for i in range(layers)])
    return dict(no_rope_layer_interval=rng.choice([3, 4]))


def phi3_rope(rng, head_dim):
    part = rng.choice([1.0, 0.5])
    rope = {"rope_type": rng.choice(["default", "longrope"]), "rope_theta": 10000.0,
            "partial_rotary_factor": part}
    if rope["rope_type"] == "longrope":
        pairs = int(head_dim * part) // 2
        rope["short_factor"] = [rng.uniform(1.0, 1.3) for _ in range(pairs)]
        rope["long_factor"] = [rng.uniform(1.0, 5.0) for _ in range(pairs)]
        rope["original_max_position_embeddings"] = 32
    return rope


def later_options(rng, family, options):
    """What the families after Qwen 3 have of their own."""
    rope = options["rope_parameters"]
    if family in ("olmo2", "smollm3", "gemma2", "gemma3_text", "granite"):
        options["attention_bias"] = rng.random() < 0.3
    if family == "starcoder2":
        options.update(use_bias=rng.random() < 0.7, norm_epsilon=options.pop("rms_norm_eps"))
        options.pop("head_dim", None)
    if family == "granite":
        options.update(
            embedding_multiplier=rng.choice([1.0, 12.0]), residual_multiplier=rng.choice([0.22, 1.0]),
            attention_multiplier=rng.choice([0.1, 1.0]), logits_scaling=rng.choice([1.0, 8.0]))
    if family == "smollm3":
        options.update(smollm3_options(rng, options["num_hidden_layers"]))
    if family == "phi3":
        options.pop("head_dim", None)
        head_dim = options["hidden_size"] // options["num_attention_heads"]
        options["rope_parameters"] = phi3_rope(rng, head_dim)
        options["original_max_position_embeddings"] = 32
    if family.startswith("gemma"):
        options.pop("hidden_act")
        options.update(gemma_options(rng, family))
        options.setdefault("head_dim", rng.choice([8, 14]))
    if family == "gemma3_text":
        local = {"rope_type": "default", "rope_theta": rng.choice([500.0, 10000.0])}
        options["rope_parameters"] = {"full_attention": rope, "sliding_attention": local}


def llama_options(rng, family, kind):
    heads = rng.choice([2, 4, 6])
    layers = rng.choice([2, 4] if family == "smollm3" else [1, 2, 4])
    if family == "gemma3_text":
        layers = rng.choice([2, 6, 7])
    longest = 40 if kind in ("linear", "dynamic") else 128
    options = dict(
        hidden_size=heads * rng.choice([8, 12, 16]),
        num_attention_heads=heads,
        num_key_value_heads=rng.choice([k for k in (1, 2, 3, 6) if heads % k == 0]),
        num_hidden_layers=layers,
        intermediate_size=rng.choice([24, 50, 96]),
        hidden_act=rng.choice(["silu"] * 3 + ["gelu", "gelu_pytorch_tanh", "quick_gelu"]),
        max_position_embeddings=longest,
        rms_norm_eps=rng.choice([1e-5, 1e-6]),
        rope_parameters=rope_options(rng, kind, rng.choice([10000.0, 500000.0, 1000000.0])),
        **windows(rng, family, layers),
    )
    if family in ("ministral", "qwen3") or rng.random() < 0.5:
        options["head_dim"] = rng.choice([4, 8, 14, 20])
    if family in ("llama", "qwen3"):
        options["attention_bias"] = rng.random() < 0.5
    if family in ("llama", "smollm3", "granite"):
        options["mlp_bias"] = rng.random() < 0.5
    later_options(rng, family, options)
    context = longest
    if kind in ("linear", "dynamic") and family not in ("phi3", "gemma3_text"):
        context = int(longest * options["rope_parameters"]["factor"])
    return options, context


def enliven(model, seed):
    """Weights with which every part of the model matters, and no two logits are close."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = torch.randn(value.shape, generator=generator)
            if value.dim() >= 2:
                fan_in = value.shape[0] if model.config.model_type == "gpt2" else value.shape[1]
                value.copy_(noise * (1.0 if "embed" in name else 1.3 / fan_in**0.5))
            elif "norm" in name or "ln_" in name:
                around = 0.0 if name.endswith("bias") or "gemma" in model.config.model_type else 1.0
                value.copy_(noise * 0.2 + around)
            else:
                value.copy_(noise * 0.3)


def use_old_keys(path, rng):
    """Rewrites a config.json as transformers 4 would have written it."""
    with open(path) as file:
        config = json.load(file)
    config["torch_dtype"] = config.pop("dtype")
    rope = config.pop("rope_parameters", None)
    if rope is not None and "sliding_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
        config["sliding_window_pattern"] = config.pop("_sliding_window_pattern", 6)
        del config["layer_types"]
    if rope is not None:
        if config["model_type"] == "phi3":
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        config["rope_theta"] = rope.pop("rope_theta")
        kind = rope.pop("rope_type")
        if kind != "default":
            # transformers takes "type" for Gemma 3's scaling to mean none.
            old = config["model_type"] != "gemma3_text" and rng.random() < 0.5
            rope["type" if old else "rope_type"] = kind
        config["rope_scaling"] = rope if kind != "default" else None
    types = config.get("layer_types")
    if config["model_type"].startswith("qwen") and types is not None:
        front = config.get("max_window_layers", 0)
        sliding = config.get("sliding_window") is not None
        by_front = ["full_attention" if i < front else "sliding_attention" for i in range(len(types))]
        if not sliding or types == by_front:
            del config["layer_types"]
    with open(path, "w") as file:
        json.dump(config, file)


def make_model(folder, index, rng):
    family = FAMILIES[index % len(FAMILIES)]
    kind = ROPE_KINDS[(index // len(FAMILIES)) % len(ROPE_KINDS)]
    if family == "gpt2":
        options, context = gpt2_options(rng)
        kind = "-"
    else:
        options, context = llama_options(rng, family, kind)
    dtype = rng.choice(list(DTYPES))
    options.update(
        vocab_size=rng.choice([61, 97, 200]),
        tie_word_embeddings=rng.random() < 0.5,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    config = transformers.AutoConfig.for_model(family, **options)
    model = transformers.AutoModelForCausalLM.from_config(config)
    enliven(model, index)
    model.generation_config.eos_token_id = None
    model.to(DTYPES[dtype]).save_pretrained(folder)
    old = rng.random() < 0.5
    if old:
        use_old_keys(os.path.join(folder, "config.json"), rng)
    label = f"{family:9} {kind:8} {dtype:8} {'old' if old else 'new'} keys"
    return label, context, options["vocab_size"]


class Volta(common.Volta):
    def generate(self, folder, prompt):
        ids = ",".join(map(str, prompt))
        return self.json("generate", folder, "--ids", ids, "-n", NEW_TOKENS, "--temperature", 0,
                         "--dtype", "f32")["ids"]


def worst_error(ours, theirs):
    """The largest difference over the row's largest |logit|."""
    scale = theirs.abs().amax(dim=-1)
    return ((ours - theirs).abs().amax(dim=-1) / scale).max().item()


def compare_logits(volta, folder, ids, scratch):
    theirs = common.logits_of(common.open_model(folder), ids)
    return worst_error(volta.logits(folder, ids, scratch, "--dtype", "f32"), theirs)


def compare_greedy(volta, folder, prompt):
    """Empty when the tokens are the same, else what differs and whether that matters."""
    model = common.open_model(folder)
    ids = torch.tensor([prompt])
    theirs = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS,
        pad_token_id=0, return_dict_in_generate=True, output_logits=True,
    )
    wanted, ours = theirs.sequences[0].tolist(), volta.generate(folder, prompt)
    if ours == wanted:
        return ""
    step = next((i for i, (a, b) in enumerate(zip(ours, wanted)) if a != b), len(ours))
    if step - len(prompt) not in range(len(theirs.logits)):
        return f"{len(ours)} tokens, transformers has {len(wanted)}"
    top = theirs.logits[step - len(prompt)][0].topk(2).values
    gap = ((top[0] - top[1]) / top[0].abs()).item()
    return f"{'tie' if gap < TOLERANCE else 'greedy tokens differ'} at {step} (gap {gap:.1e})"


def train(volta, folder, ids, scratch):
    """Three updates from a model; the folder that Volta wrote."""
    data, out = os.path.join(scratch, "data.safetensors"), os.path.join(scratch, "run")
    save_file({"input_ids": ids.contiguous()}, data)
    return volta.json("train", "--init", folder, "--data", data, "--batch", 2, "--steps", 3,
                      "--lr", 0.01, "--out", out)["checkpoint"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--volta", required=True)
    parser.add_argument("--models", type=int, default=90)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="folder in which models that fail are kept")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(2)
    volta = Volta(arguments.volta)
    failed, ties, worst, worst_back = 0, 0, 0.0, 0.0
    for index in range(arguments.first, arguments.first + arguments.models):
        rng = random.Random(arguments.seed * 100003 + index)
        problems, error, back = [], 0.0, None
        with tempfile.TemporaryDirectory() as scratch:
            folder = os.path.join(scratch, "model")
            label, context, vocab = make_model(folder, index, rng)
            time = rng.choice([1, 7, context // 2, context])
            ids = torch.tensor([[rng.randrange(vocab) for _ in range(time)] for _ in range(3)])
            length = rng.choice([1, 3, context // 3, context - NEW_TOKENS])
            prompt = [rng.randrange(vocab) for _ in range(length)]
            try:
                error = compare_logits(volta, folder, ids, scratch)
                problems.append("logits" if not error <= TOLERANCE else "")
                problems.append(compare_greedy(volta, folder, prompt))
                if index % 2 == 0:
                    rows = ids[:, :16] if time > 1 else ids.repeat(1, 8)
                    trained = train(volta, folder, rows, scratch)
                    back = compare_logits(volta, trained, ids, scratch)
                    problems.append("trained logits" if not back <= TOLERANCE else "")
            except (RuntimeError, ValueError, KeyError, OSError) as problem:
                problems.append(str(problem).strip()[-600:])
            problems = [problem for problem in problems if problem]
            if problems and arguments.keep:
                shutil.copytree(folder, os.path.join(arguments.keep, str(index)), dirs_exist_ok=True)
        worst, worst_back = max(worst, error), max(worst_back, back or 0.0)
        ties += any(problem.startswith("tie") for problem in problems)
        failed += any(not problem.startswith("tie") for problem in problems)
        text = "" if back is None else f", trained {back:.1e}"
        print(f"{index:3} {label}, {time:3} tokens: {error:.1e}{text}  {'; '.join(problems) or 'ok'}",
              flush=True)
    print(f"{arguments.models} models, {failed} failed, {ties} ties of greedy tokens; worst relative error of logits {worst:.1e}, "
          f"of models trained by Volta {worst_back:.1e}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
