"""Adapters between Volta and peft, both ways, as a user would pass them on.

    python tests/interop/lora.py VOLTA_BINARY [MODEL_DIR ...]

For every model: an adapter made by peft gives the same logits in Volta, merged by Volta or not; one
trained by Volta gives the same logits in peft. Ends with 1 when any differ by more than 1e-4 of the
largest, with 77 (skipped) without torch, transformers or peft. Without MODEL_DIR the models are a
tiny GPT-2 and a tiny Llama with random weights.
"""
import pathlib
import sys
import tempfile

import common

torch, transformers, peft = common.need("torch", "transformers", "peft")
from safetensors.torch import save_file  # noqa: E402 (transformers brings it along)

TOLERANCE = 1e-4


def generation_difference(volta, model, folder, adapter):
    """Greedy ids of Volta with the adapter, and how far its log-probabilities are from `model`'s."""
    made = volta.json("generate", folder, "--adapter", adapter, "--ids", "5,6,7", "-n", 16,
                      "--temperature", 0)
    ids = made["ids"]
    logprobs = torch.log_softmax(common.logits_of(model, torch.tensor([ids]))[0], -1)
    ours = torch.tensor(made["logprobs"])
    theirs = torch.stack([logprobs[2 + i, t] for i, t in enumerate(ids[3:])])
    return (ours - theirs).abs().max().item()


def from_peft(volta, folder, work, ids):
    """{what is compared: how far it is off, or whether it holds}, for an adapter that peft made."""
    base = common.open_model(folder)
    gpt2 = base.config.model_type == "gpt2"
    targets = ["c_attn", "mlp.c_proj"] if gpt2 else ["q_proj", "v_proj", "o_proj", "down_proj"]
    made = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=12, target_modules=targets,
                                                     task_type="CAUSAL_LM", fan_in_fan_out=gpt2))
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    made.eval().save_pretrained(work / "made")
    wanted = common.logits_of(made, ids)
    volta.run("merge", folder, "--adapter", work / "made", "--out", work / "merged")
    merged = common.logits_of(common.open_model(work / "merged"), ids)
    changed = common.relative(common.logits_of(common.open_model(folder), ids), wanted)
    return {"peft's changes the model": changed > 0.01,
            "peft's, merged by Volta": common.relative(merged, wanted),
            "peft's, in volta generate": generation_difference(volta, made, folder, work / "made")}


def from_volta(volta, folder, work, ids):
    """The same for one that Volta trained."""
    rows = torch.randint(0, int(common.open_model(folder).config.vocab_size), (8, 25))
    save_file({"input_ids": rows}, work / "rows.safetensors")
    volta.run("train", "--init", folder, "--data", work / "rows.safetensors", "--batch", 4,
              "--steps", 20, "--lr", 1e-2, "--lora-rank", 4, "--lora-targets", "all-linear",
              "--lora-dropout", 0.1, "--out", work / "run")
    adapter = work / "run" / "step-20"
    trained = peft.PeftModel.from_pretrained(common.open_model(folder), adapter).eval()
    by_itself = peft.AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.float32).eval()
    volta.run("merge", folder, "--adapter", work / "run", "--out", work / "ours")
    ours = common.logits_of(common.open_model(work / "ours"), ids)
    changed = common.relative(common.logits_of(common.open_model(folder), ids), ours)
    return {"Volta's changes the model": changed > 0.01,
            "Volta's, in peft": common.relative(common.logits_of(trained, ids), ours),
            "Volta's, in peft by its own base path":
                common.relative(common.logits_of(by_itself, ids), ours),
            "Volta's, in volta generate": generation_difference(volta, trained, folder, work / "run")}


def make_models(work):
    """A GPT-2, whose matrices lie transposed, and a Llama with fewer heads of keys than of queries."""
    sizes = dict(vocab_size=61, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    gpt2 = transformers.GPT2Config(n_embd=16, n_head=2, n_layer=2, n_positions=64, **sizes)
    llama = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.2, **sizes)
    for config in (gpt2, llama):
        folder = work / config.model_type
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        yield folder


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(1)
    report = common.Report()
    volta = common.Volta(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        folders = [pathlib.Path(name).resolve() for name in sys.argv[2:]] or list(make_models(work))
        for folder in folders:
            place = work / f"{folder.name}-runs"
            place.mkdir()
            ids = torch.randint(0, int(common.open_model(folder).config.vocab_size), (2, 24))
            for compare in (from_peft, from_volta):
                for what, result in compare(volta, folder, place, ids).items():
                    if isinstance(result, bool):
                        report.holds(f"{folder.name}: {what}", result)
                    else:
                        report.near(f"{folder.name}: {what}", result, TOLERANCE)
    sys.exit(report.failed)


main()
