"""Writes llama3_logits.safetensors: transformers' logits of every fourth token of llama3-tiny.

    python make_llama3_golden.py MODELS_FOLDER

The folder's own golden was made from a model that had been cast to bf16 and back as a whole, which
rounds its rotary frequencies, too; what from_pretrained() gives has them in f32, as every model that
is loaded from its files.
"""

import pathlib
import sys

import safetensors.torch
import torch
import transformers

folder = pathlib.Path(sys.argv[1]) / "llama3-tiny-bf16-sharded"
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
golden = safetensors.torch.load_file(folder / "golden.safetensors")
with torch.no_grad():
    logits = model(golden["input_ids"]).logits[:, 3::4].contiguous()
out = pathlib.Path(__file__).parent / "llama3_logits.safetensors"
safetensors.torch.save_file({"logits": logits}, out)
