#!/usr/bin/env python3
"""Volta's AttentionGrad on a GPU beside the backward pass of PyTorch's attention (cuDNN and flash).

    cmake --preset cuda -DVOLTA_PEERS=ON
    cmake --build build/cuda --target bench_gpu_attention_grad
    bench/gpu/attention_grad.py [--rounds 21] [--output json] [--program FILE]
                                [--case B,H,KV,T,D,CAUSAL]

Measures packed rows in bf16 with uniformly random values: medians of single calls, by events. The
TFLOP/s count 10 B H T^2 D, a causal mask half of it. `mma` is Volta's kernel for GPUs before Hopper
on the same GPU.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "cuda" / "bench" / "gpu" / "bench_gpu_attention_grad"
CASES = [
    "64,12,12,1024,64,1",  # A layer of GPT-2 124M in training.
    "16,12,12,1024,64,1",
    "16,12,12,1024,64,0",
    "4,16,16,4096,128,1",
    "4,16,16,2048,128,0",
    "2,32,8,8192,128,1",
]


def volta(program: Path, cases: list[str], rounds: int, architecture: int) -> list[float]:
    """Microseconds. Each case is a process of its own, whose memory is free for the next."""
    times = []
    for case in cases:
        words = [program, str(rounds), str(architecture), case]
        answer = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        times.append(json.loads(answer)["us"])
    return times


def torch_time(case: str, backend: str, rounds: int) -> float | None:
    """Microseconds, or None if the backend does not take the case."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch, heads, kv, time, dim, causal = map(int, case.split(","))
    rows = torch.rand(batch, time, (heads + 2 * kv) * dim, device="cuda", dtype=torch.bfloat16)
    parts = (rows * 2 - 1).split([heads * dim, kv * dim, kv * dim], dim=2)
    inputs = [
        part.view(batch, time, -1, dim).transpose(1, 2).detach().requires_grad_(True)
        for part in parts
    ]
    choice = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[backend]
    try:
        with sdpa_kernel([choice]):
            y = torch.nn.functional.scaled_dot_product_attention(
                *inputs, is_causal=bool(causal), enable_gqa=heads != kv
            )
        dy = torch.rand_like(y) * 2 - 1
        for _ in range(5):
            torch.autograd.grad(y, inputs, dy, retain_graph=True)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
        events[0].record()
        for event in events[1:]:
            torch.autograd.grad(y, inputs, dy, retain_graph=True)
            event.record()
        torch.cuda.synchronize()
    except RuntimeError:
        return None
    times = sorted(a.elapsed_time(b) for a, b in zip(events, events[1:]))
    return times[rounds // 2] * 1e3


def tflops(case: str, microseconds: float) -> float:
    batch, heads, _, time, dim, causal = map(int, case.split(","))
    return 10 * batch * heads * time**2 * dim / (2 if causal else 1) / microseconds / 1e6


def cell(case: str, microseconds: float | None) -> str:
    if microseconds is None:
        return "-"
    return f"{microseconds:.0f} us {tflops(case, microseconds):.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--output", choices=["text", "json"], default="text")
    parser.add_argument("--program", type=Path, default=PROGRAM)
    parser.add_argument("--case", action="append", help="batch,heads,kv_heads,time,head_dim,causal")
    options = parser.parse_args()
    cases = options.case or CASES
    rows = []
    own = volta(options.program, cases, options.rounds, 90)
    older = volta(options.program, cases, options.rounds, 80)
    for case, volta_us, mma_us in zip(cases, own, older):
        row = {"case": case, "volta": volta_us, "mma": mma_us}
        for backend in ("cudnn", "flash"):
            row[backend] = torch_time(case, backend, options.rounds)
        rows.append(row)
    if options.output == "json":
        print(json.dumps(rows, indent=1))
        return 0
    names = ("volta", "mma", "cudnn", "flash")
    print(f"{'B,H,KV,T,D,causal':22s}" + "".join(f"{name + ' TFLOP/s':>18s}" for name in names))
    for row in rows:
        print(f"{row['case']:22s}" + "".join(f"{cell(row['case'], row[n]):>18s}" for n in names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
