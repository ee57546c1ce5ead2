"""Adapters between Volta and peft, both ways, as a user would pass them on.

    python tests/interop/lora.py VOLTA_BINARY MODEL_DIR [MODEL_DIR ...]

For every model: an adapter made by peft gives the same logits in Volta, merged by Volta or not; one
trained by Volta gives the same logits in peft. Exits with 1 when any differ by more than 1e-4 of
the largest. Needs torch, transformers, peft.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

TOLERANCE = 1e-4


def volta(*words):
    done = subprocess.run([sys.argv[1], *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"volta {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits(model, ids):
    with torch.no_grad():
        return model(ids).logits


def difference(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def generation_difference(model, folder, adapter):
    """Greedy ids of Volta with the adapter, and how far its log-probabilities are from `model`'s."""
    said = json.loads(volta("generate", folder, "--adapter", adapter, "--ids", "5,6,7", "-n", 16,
                            "--temperature", 0, "--output", "json"))
    ids = said["ids"]
    logprobs = torch.log_softmax(logits(model, torch.tensor([ids]))[0], -1)
    ours = torch.tensor(said["logprobs"])
    theirs = torch.stack([logprobs[2 + i, t] for i, t in enumerate(ids[3:])])
    return (ours - theirs).abs().max().item()


def check(folder, work):
    base = load(folder)
    vocab = base.config.vocab_size
    ids = torch.randint(0, vocab, (2, 24))
    gpt2 = base.config.model_type == "gpt2"
    results = {}

    # From peft to Volta.
    targets = ["c_attn", "mlp.c_proj"] if gpt2 else ["q_proj", "v_proj", "o_proj", "down_proj"]
    made = get_peft_model(base, LoraConfig(r=4, lora_alpha=12, target_modules=targets,
                                           task_type="CAUSAL_LM", fan_in_fan_out=gpt2))
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    made.eval().save_pretrained(work / "made")
    wanted = logits(made, ids)
    results["the adapter matters"] = TOLERANCE * (difference(logits(load(folder), ids), wanted) < 0.01)
    volta("merge", folder, "--adapter", work / "made", "--out", work / "merged")
    results["peft's, merged by Volta"] = difference(logits(load(work / "merged"), ids), wanted)
    results["peft's, in volta generate"] = generation_difference(made, folder, work / "made")

    # From Volta to peft.
    rows = torch.randint(0, vocab, (8, 25))
    save_file({"input_ids": rows}, work / "rows.safetensors")
    volta("train", "--init", folder, "--data", work / "rows.safetensors", "--batch", 4, "--steps", 20,
          "--lr", 1e-2, "--lora-rank", 4, "--lora-targets", "all-linear", "--lora-dropout", 0.1,
          "--out", work / "run")
    adapter = work / "run" / "step-20"
    trained = PeftModel.from_pretrained(load(folder), adapter).eval()
    by_itself = AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.float32).eval()
    volta("merge", folder, "--adapter", work / "run", "--out", work / "ours")
    ours = logits(load(work / "ours"), ids)
    results["Volta's matters"] = TOLERANCE * (difference(logits(load(folder), ids), ours) < 0.01)
    results["Volta's, in peft"] = difference(logits(trained, ids), ours)
    results["Volta's, in peft by its own base path"] = difference(logits(by_itself, ids), ours)
    results["Volta's, in volta generate"] = generation_difference(trained, folder, work / "run")
    return results


def main():
    failed = False
    torch.manual_seed(1)
    for folder in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as work:
            for what, error in check(pathlib.Path(folder), pathlib.Path(work)).items():
                good = error < TOLERANCE
                failed |= not good
                print(f"{'ok  ' if good else 'FAIL'} {pathlib.Path(folder).name}: {what}: {error:.1e}")
    sys.exit(failed)


main()
