"""Makes tests/train/data/lora_{llama,gpt2}: a tiny model, an adapter for it made by peft, and what
PyTorch gives with both: logits, the adapter's gradients, the losses of 20 AdamW updates and the
adapter after them. Needs torch, transformers, peft, safetensors.

    python tests/train/make_lora_golden.py
"""
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

VOCAB, TIME, BATCH, STEPS = 19, 12, 4, 20
HERE = pathlib.Path(__file__).parent / "data"


def llama():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=4, max_position_embeddings=32,
        initializer_range=0.2))


def gpt2():
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=4, n_positions=32, n_inner=24,
        attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, initializer_range=0.2))


def make(name, model, lora):
    folder = HERE / f"lora_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    model.eval()
    model.save_pretrained(folder)
    adapted = get_peft_model(model, lora)
    trained = {n: p for n, p in adapted.named_parameters() if p.requires_grad}
    for n, p in trained.items():  # B too, so that A has gradients from the first update on.
        if "lora_B" in n:
            torch.nn.init.normal_(p, std=0.1)
    adapted.peft_config["default"].base_model_name_or_path = "."
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    (folder / "generation_config.json").unlink(missing_ok=True)

    rows = torch.randint(0, VOCAB, (BATCH, TIME + 1))
    ids, targets = rows[:, :-1], rows[:, 1:]
    golden = {"input_ids": rows.contiguous()}
    short = {n: n.replace("base_model.model.", "", 1).replace(".default.", ".") for n in trained}
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1)
    losses = []
    for step in range(STEPS):
        logits = adapted(ids).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            golden["logits"] = logits.detach().clone()
            golden |= {"grad." + short[n]: p.grad.clone() for n, p in trained.items()}
        torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    golden["losses"] = torch.tensor(losses)
    golden |= {"after." + short[n]: p.detach().clone() for n, p in trained.items()}
    save_file(golden, folder / "golden.safetensors")
    print(name, losses[0], losses[-1])


torch.manual_seed(1)
make("llama", llama(), LoraConfig(r=3, lora_alpha=5, task_type="CAUSAL_LM",
                                  target_modules=["q_proj", "v_proj", "o_proj", "down_proj"]))
make("gpt2", gpt2(), LoraConfig(r=4, lora_alpha=6, use_rslora=True, task_type="CAUSAL_LM",
                                target_modules="all-linear", fan_in_fan_out=True))
