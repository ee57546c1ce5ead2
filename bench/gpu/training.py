#!/usr/bin/env python3
"""GPT-2 124M trained by Volta on a GPU beside PyTorch with torch.compile, in turns.

    bench/gpu/training.py [--program build/cuda/volta] [--vocab 50304] [--batch 64] [--steps 30]
        [--rounds 2] [--output text|json]

A step is 1,024 tokens in each of --batch rows of random ids: forward, backward, clipping, AdamW.
Volta runs as `volta train --dtype bf16`; its figure is the last line of metrics.jsonl, a moving
mean. PyTorch runs under autocast in bf16, with scaled_dot_product_attention and the fused AdamW, and
its figure is the median of turns of 8 steps after the compilation. A vocabulary of 50,257 rows that
are not multiples of 16 bytes is slower for both.
"""

import argparse
import json
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIME, DIM, HEADS, LAYERS = 1024, 768, 12, 12
FLAGS = ("--layers 12 --heads 12 --dim 768 --context 1024 --position learned --norm layer --bias "
         "--ffn-kind mlp --activation gelu_tanh --optimizer adamw --schedule constant --warmup 0 "
         "--lr 3e-4 --beta2 0.95 --weight-decay 0.1 --clip 1 --dropout 0 --eval-every 0 "
         "--save-every 0 --device cuda --dtype bf16").split()


def write_ids(path: Path, rows: int, vocab: int) -> None:
    import numpy as np

    ids = np.random.default_rng(0).integers(0, vocab, (rows, TIME + 1)).astype("<i8")
    header = json.dumps({"input_ids": {"dtype": "I64", "shape": list(ids.shape),
                                       "data_offsets": [0, ids.nbytes]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + ids.tobytes())


def volta_rate(options: argparse.Namespace, folder: Path) -> float:
    run = folder / "run"
    subprocess.run([options.program, "train", "--data", folder / "ids.safetensors", "--out", run,
                    "--vocab", str(options.vocab), "--batch", str(options.batch), "--steps",
                    str(options.steps), "--force", "--quiet", *FLAGS], check=True)
    last = (run / "metrics.jsonl").read_text().splitlines()[-1]
    return json.loads(last)["tokens_per_s"]


class Torch:
    """GPT-2 in PyTorch, compiled on the first step."""

    def __init__(self, options: argparse.Namespace):
        import torch
        from torch import nn
        from torch.nn import functional as F

        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
                self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
                self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

            def forward(self, x):
                shape = (*x.shape[:2], HEADS, DIM // HEADS)
                q, k, v = (part.view(shape).transpose(1, 2)
                           for part in self.qkv(self.norm1(x)).split(DIM, 2))
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.proj(y.transpose(1, 2).reshape(x.shape))
                return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

        class Gpt2(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens = nn.Embedding(options.vocab, DIM)
                self.places = nn.Embedding(TIME, DIM)
                self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
                self.norm = nn.LayerNorm(DIM)

            def forward(self, ids, targets):
                x = self.tokens(ids) + self.places.weight
                for layer in self.layers:
                    x = layer(x)
                logits = F.linear(self.norm(x), self.tokens.weight)
                return F.cross_entropy(logits.view(-1, options.vocab), targets.reshape(-1))

        self.torch = torch
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        self.model = Gpt2().cuda()
        self.compiled = torch.compile(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, betas=(0.9, 0.95),
                                           weight_decay=0.1, fused=True)
        self.ids = torch.randint(0, options.vocab, (options.batch, TIME + 1), device="cuda")
        for _ in range(4):
            self.step()

    def step(self) -> None:
        with self.torch.autocast("cuda", self.torch.bfloat16):
            loss = self.compiled(self.ids[:, :-1], self.ids[:, 1:])
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def rate(self, steps: int = 8) -> float:
        self.torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.torch.cuda.synchronize()
        return steps * self.ids.shape[0] * TIME / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build" / "cuda" / "volta", type=Path)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30, help="of Volta in a turn")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", choices=["text", "json"], default="text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_ids(folder / "ids.safetensors", 10 * options.batch, options.vocab)
        ours = [volta_rate(options, folder)]
        torch = Torch(options)
        theirs = []
        for _ in range(options.rounds):
            theirs += [torch.rate() for _ in range(3)]
            ours.append(volta_rate(options, folder))
    result = {"gpu": torch.torch.cuda.get_device_name(), "torch": torch.torch.__version__,
              "vocab": options.vocab, "batch": options.batch, "volta": statistics.median(ours),
              "torch_compile": statistics.median(theirs)}
    result["ratio"] = result["volta"] / result["torch_compile"]
    if options.output == "json":
        print(json.dumps(result))
        return
    print(f"{result['gpu']}, PyTorch {result['torch']}, GPT-2 124M, {options.batch} x {TIME}, "
          f"vocabulary {options.vocab}\nVolta {result['volta'] / 1000:.0f}K tokens/s "
          f"({', '.join(f'{x / 1000:.0f}K' for x in ours)}), torch.compile "
          f"{result['torch_compile'] / 1000:.0f}K: {result['ratio']:.2f}")


if __name__ == "__main__":
    main()
