#!/usr/bin/env python3
"""Volta's training step beside PyTorch's on this CPU, turn by turn on the same random ids.

    pip install torch --index-url https://download.pytorch.org/whl/cpu
    bench/peers/training.py [--model shakespeare,gpt2-t64,gpt2-t256] [--threads 1,2] [--rounds 7]
        [--steps 5] [--dtype f32|bf16] [--compile] [--llm-c DIR] [--output text|json]

shakespeare is the preset shakespeare-char-cpu, gpt2-tT is GPT-2 124M with batches of 4 x T. A step
is forward, backward, clipping and AdamW (PyTorch's fused one); bf16 is `volta train --dtype bf16`
beside autocast. Volta and PyTorch keep weights and updates in f32. Volta runs as `volta train`, stopped
(SIGSTOP) while PyTorch has its turn; the first step of each turn is left out. tokens/s are medians
of all steps, the ratio is that of the medians. Losses are shown: they start near ln(vocab).
--llm-c is the folder of a built llm.c with its data: train_gpt2 joins in for gpt2-t64, the batch
that it is written for. It runs as built, on its own text and weights.
"""
import argparse
import json
import os
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import measuring

MODELS = {
    "shakespeare": {"layers": 4, "heads": 4, "dim": 128, "context": 64, "vocab": 65, "batch": 12,
                    "time": 64, "bias": False, "tanh": False, "beta2": 0.99, "lr": 1e-3},
    "gpt2-t64": {"layers": 12, "heads": 12, "dim": 768, "context": 1024, "vocab": 50257,
                 "batch": 4, "time": 64, "bias": True, "tanh": True, "beta2": 0.95, "lr": 3e-4},
}
MODELS["gpt2-t256"] = {**MODELS["gpt2-t64"], "time": 256}
ROWS = 64  # Of ids; they are taken in order, again and again.
WEIGHT_DECAY, CLIP = 0.1, 1.0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=",".join(MODELS), help="any of " + ", ".join(MODELS))
    parser.add_argument("--threads", type=measuring.numbers, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5, help="measured steps a turn")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--llm-c", help="folder of llm.c, with train_gpt2 and its data")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    parser.add_argument("--volta", default=measuring.VOLTA)
    parser.add_argument("--machine", default=measuring.MACHINE)
    options = parser.parse_args()
    options.model = options.model.split(",")
    for name in options.model:
        if name not in MODELS:
            parser.error(f"--model {name}: choose from {', '.join(MODELS)}")
    return options


def write_ids(path, ids):
    """`input_ids` i64 [rows, time + 1] as a safetensors file."""
    data = ids.numpy().astype("<i8").tobytes()
    header = json.dumps({"input_ids": {"dtype": "I64", "shape": list(ids.shape),
                                       "data_offsets": [0, len(data)]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)


class StoppedTrainer:
    """A program that trains and tells of every step, and runs in its turns only. Subclasses say
    what it told: steps() gives tokens/s and loss of each step so far."""

    def __init__(self, command, log, **where):
        self.command, self.log, self.where = [str(word) for word in command], log, where
        self.start()
        self.wait_for(1)
        self.pause()

    def start(self):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, **self.where)

    def wait_for(self, count):
        while len(self.steps()) < count:
            code = self.process.poll()
            if code == 0:
                self.start()  # It ended as it should, but too early for us.
            elif code is not None:
                with open(self.log) as log:
                    sys.exit(f"{self.command[0]} ended with {code}:\n{log.read()}")
            time.sleep(0.02)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def turn(self, steps):
        """tokens/s of each step, and the last loss."""
        done = len(self.steps())
        self.process.send_signal(signal.SIGCONT)
        self.wait_for(done + 1 + steps)  # The first of them was stopped half-way.
        self.pause()
        rates, losses = zip(*self.steps()[done + 1:done + 1 + steps])
        return list(rates), losses[-1]

    def end(self):
        self.process.kill()
        self.process.wait()


class VoltaTrainer(StoppedTrainer):
    """`volta train` without an end."""

    def __init__(self, program, model, data, folder, threads, dtype):
        self.metrics = os.path.join(folder, "run", "metrics.jsonl")
        command = [program, "train", "--data", data, "--out", os.path.join(folder, "run"),
                   "--threads", threads, "--dtype", dtype, "--layers", model["layers"], "--heads", model["heads"],
                   "--dim", model["dim"], "--context", model["context"], "--vocab", model["vocab"],
                   "--batch", model["batch"], "--position", "learned", "--norm", "layer",
                   "--ffn-kind", "mlp", "--activation", "gelu_tanh" if model["tanh"] else "gelu",
                   "--optimizer", "adamw", "--schedule", "constant", "--warmup", 0,
                   "--lr", model["lr"], "--beta2", model["beta2"], "--weight-decay", WEIGHT_DECAY,
                   "--clip", CLIP, "--dropout", 0, "--steps", 10**9, "--eval-every", 0,
                   "--save-every", 0]
        super().__init__(command + ["--bias"] * model["bias"], os.path.join(folder, "volta.log"))

    def steps(self):
        try:
            with open(self.metrics) as file:
                text = file.read()
        except FileNotFoundError:
            return []
        records = map(json.loads, text[:text.rfind("\n") + 1].splitlines())
        return [(record["tokens_per_s"], record["loss"]) for record in records]


class LlmCTrainer(StoppedTrainer):
    """llm.c's train_gpt2, which does 40 steps and is started again then."""

    def __init__(self, llm_c, model, folder, threads):
        self.tokens = model["batch"] * model["time"]
        # Its lines are to come at once, not when a buffer is full.
        super().__init__(["stdbuf", "-oL", os.path.join(os.path.abspath(llm_c), "train_gpt2")],
                         os.path.join(folder, "llm_c.log"), cwd=llm_c,
                         env={**os.environ, "OMP_NUM_THREADS": str(threads)})

    def steps(self):
        with open(self.log, errors="replace") as log:
            told = re.findall(r"train loss ([\d.]+) \(took ([\d.]+) ms\)", log.read())
        return [(self.tokens / (float(ms) * 1e-3), float(loss)) for loss, ms in told]


def make_torch_model(torch, model):
    """GPT-2 as Volta's config describes it; the output is the embedding."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            dim, bias = model["dim"], model["bias"]
            self.norm_1 = nn.LayerNorm(dim, bias=bias)
            self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
            self.out = nn.Linear(dim, dim, bias=bias)
            self.norm_2 = nn.LayerNorm(dim, bias=bias)
            self.up = nn.Linear(dim, 4 * dim, bias=bias)
            self.gelu = nn.GELU(approximate="tanh" if model["tanh"] else "none")
            self.down = nn.Linear(4 * dim, dim, bias=bias)

        def forward(self, x):
            batch, length, dim = x.shape
            heads = self.qkv(self.norm_1(x)).view(batch, length, 3, model["heads"], -1)
            q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, dim))
            return x + self.down(self.gelu(self.up(self.norm_2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(model["vocab"], model["dim"])
            self.places = nn.Embedding(model["context"], model["dim"])
            self.blocks = nn.ModuleList(Block() for _ in range(model["layers"]))
            self.norm = nn.LayerNorm(model["dim"], bias=model["bias"])
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, ids, targets):
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.norm(x), self.tokens.weight)
            return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return Gpt()


class TorchTrainer:
    def __init__(self, torch, model, ids, options):
        self.torch, self.bf16 = torch, options.dtype == "bf16"
        self.ids, self.batch, self.next = ids, model["batch"], 0
        self.model = make_torch_model(torch, model)
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        vectors = [p for p in self.model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": WEIGHT_DECAY},
             {"params": vectors, "weight_decay": 0.0}],
            lr=model["lr"], betas=(0.9, model["beta2"]), fused=True)
        self.loss = torch.compile(self.model) if options.compile else self.model
        self.step()

    def step(self):
        rows = self.ids[self.next:self.next + self.batch]
        self.next = (self.next + self.batch) % (len(self.ids) - self.batch + 1)
        with self.torch.autocast("cpu", self.torch.bfloat16, enabled=self.bf16):
            loss = self.loss(rows[:, :-1], rows[:, 1:])
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def turn(self, steps):
        tokens = self.batch * (self.ids.shape[1] - 1)
        self.step()
        rates = []
        for _ in range(steps):
            begin = time.perf_counter()
            loss = self.step()
            rates.append(tokens / (time.perf_counter() - begin))
        return rates, loss

    def end(self):
        pass


def measure(torch, options, name, threads):
    model = MODELS[name]
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    ids = torch.randint(model["vocab"], (ROWS, model["time"] + 1))
    before = measuring.memory_state(options.machine, threads)
    folder = tempfile.mkdtemp(prefix="volta-training-")
    trainers = {}
    try:
        data = os.path.join(folder, "ids.safetensors")
        write_ids(data, ids)
        trainers["volta"] = VoltaTrainer(options.volta, model, data, folder, threads,
                                          options.dtype)
        trainers["pytorch"] = TorchTrainer(torch, model, ids, options)
        if options.llm_c and name == "gpt2-t64":
            trainers["llm_c"] = LlmCTrainer(options.llm_c, model, folder, threads)
        rates = {contender: [] for contender in trainers}
        losses = {}
        for _ in range(options.rounds):
            for contender, trainer in trainers.items():
                taken, losses[contender] = trainer.turn(options.steps)
                rates[contender] += taken
        parameters = sum(p.numel() for p in trainers["pytorch"].model.parameters())
    finally:
        for trainer in trainers.values():
            trainer.end()
        shutil.rmtree(folder)
    report = {"model": name, "threads": threads, "batch": model["batch"], "time": model["time"],
              "torch": torch.__version__, "compiled": options.compile, "dtype": options.dtype,
              "parameters": parameters,
              "before": before, "after": measuring.memory_state(options.machine, threads),
              "contenders": {}}
    base = statistics.median(rates["volta"])
    for contender, values in rates.items():
        report["contenders"][contender] = {**measuring.summary(values), "loss": losses[contender],
                                           "ratio": base / statistics.median(values)}
    return report


def to_text(report):
    lines = [measuring.state_in_words("before", report["before"]),
             f"# {report['model']}, {report['parameters']} parameters, {report['batch']} x "
             f"{report['time']}, {report['dtype']}, {report['threads']} threads, PyTorch {report['torch']}"
             f"{' compiled' if report['compiled'] else ''}; tokens/s: median (10th..90th "
             "percentile), Volta's ratio to it"]
    for contender, row in report["contenders"].items():
        lines.append(f"{contender:>8} {measuring.in_words(row)} {row['ratio']:.2f}x, "
                     f"loss {row['loss']:.2f}")
    return "\n".join(lines + [measuring.state_in_words("after", report["after"])])


def main():
    options = parse_arguments()
    try:
        import torch
    except ImportError:
        sys.exit("PyTorch is missing: pip install torch "
                 "--index-url https://download.pytorch.org/whl/cpu")
    reports = []
    for name in options.model:
        for threads in options.threads:
            reports.append(measure(torch, options, name, threads))
            if options.output == "text":
                print(to_text(reports[-1]), flush=True)
    if options.output == "json":
        print(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
