#!/usr/bin/env python3
"""Volta's Attention on a GPU beside PyTorch's scaled_dot_product_attention (cuDNN and flash).

    cmake --preset cuda -DVOLTA_PEERS=ON && cmake --build build/cuda --target bench_gpu_attention
    bench/gpu/attention.py [--rounds 21] [--output json] [--case B,H,KV,T,D,CAUSAL]

Packed rows in bf16 with uniformly random values: medians of single calls, by events. PyTorch's
inputs want gradients, so that it stores the rows' statistics as Volta does. The TFLOP/s count
4 B H T^2 D, a causal mask half of it. `mma` is Volta's kernel for GPUs before Hopper on the same
GPU.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "cuda" / "bench" / "gpu" / "bench_gpu_attention"
CASES = [
    "64,12,12,1024,64,1",  # A layer of GPT-2 124M in training.
    "16,12,12,1024,64,1",
    "4,32,32,4096,64,1",
    "4,32,32,4096,64,0",
    "4,32,8,2048,64,1",
    "4,16,16,4096,128,1",
    "4,16,16,4096,128,0",
    "4,32,8,2048,128,1",
    "2,32,32,8192,128,1",
]


def volta(program: Path, cases: list[str], rounds: int, architecture: int) -> list[float]:
    words = [program, str(rounds), str(architecture), *cases]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line)["us"] for line in lines]


def torch_time(case: str, backend: str, rounds: int) -> float | None:
    """Microseconds, or None if the backend does not take the case."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch, heads, kv, time, dim, causal = map(int, case.split(","))
    rows = torch.rand(batch, time, (heads + 2 * kv) * dim, device="cuda", dtype=torch.bfloat16)
    parts = (rows * 2 - 1).split([heads * dim, kv * dim, kv * dim], dim=2)
    q, k, v = [
        part.view(batch, time, -1, dim).transpose(1, 2).detach().requires_grad_(True)
        for part in parts
    ]
    choice = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[backend]

    def call() -> None:
        torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=bool(causal), enable_gqa=heads != kv
        )

    try:
        with sdpa_kernel([choice]):
            for _ in range(5):
                call()
            events = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
            events[0].record()
            for event in events[1:]:
                call()
                event.record()
            torch.cuda.synchronize()
    except RuntimeError:
        return None
    times = sorted(a.elapsed_time(b) for a, b in zip(events, events[1:]))
    return times[rounds // 2] * 1e3


def tflops(case: str, microseconds: float) -> float:
    batch, heads, _, time, dim, causal = map(int, case.split(","))
    return 4 * batch * heads * time**2 * dim / (2 if causal else 1) / microseconds / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--output", choices=["text", "json"], default="text")
    parser.add_argument("--program", type=Path, default=PROGRAM)
    parser.add_argument("--case", action="append", help="batch,heads,kv_heads,time,head_dim,causal")
    options = parser.parse_args()
    cases = options.case or CASES
    results = []
    own = volta(options.program, cases, options.rounds, 90)
    older = volta(options.program, cases, options.rounds, 80)
    for case, volta_us, mma_us in zip(cases, own, older):
        row = {"case": case, "volta": volta_us, "mma": mma_us}
        for backend in ("cudnn", "flash"):
            row[backend] = torch_time(case, backend, options.rounds)
        results.append(row)
    if options.output == "json":
        print(json.dumps(results, indent=1))
        return 0
    print(f"{'B,H,KV,T,D,causal':22s} {'Volta':>16s} {'cuDNN':>16s} {'ratio':>6s} "
          f"{'flash':>16s} {'mma':>16s}")  # fmt: skip
    for row in results:
        cells = {
            name: f"{row[name]:8.1f} us {tflops(row['case'], row[name]):4.0f}" if row[name] else "-"
            for name in ("volta", "cudnn", "flash", "mma")
        }
        ratio = f"{row['cudnn'] / row['volta']:.2f}" if row["cudnn"] else "-"
        print(f"{row['case']:22s} {cells['volta']:>16s} {cells['cudnn']:>16s} {ratio:>6s} "
              f"{cells['flash']:>16s} {cells['mma']:>16s}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
