#!/usr/bin/env python3
"""Volta's prefill and decoding beside llama-bench, round by round in turn, of the same model.

    bench/peers/llama.py --model DIR_OR_GGUF [--weights W] [--llama-bench PROGRAM --gguf FILE]
        [--llama-args "..."] [--threads 1,2] [--prompt 128,512] [--tokens 64] [--rounds 5]
        [--output text|json]

pp128 is a prompt of 128 random tokens, tg64 is 64 tokens from an empty cache; both in tokens/s,
medians of the rounds. Each round starts both programs anew; each warms up first. GB/s are the
weights that a token reads, by Volta's count, beside the read speed that the machine has before and
after (peers_machine). Without --llama-bench Volta is measured alone. --llama-args go to llama-bench
as they are, for example "-rtr 1".
"""
import argparse
import json
import shlex
import subprocess
import sys

import measuring


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="model folder or .gguf file for Volta")
    parser.add_argument("--weights", default="stored", help="as in volta --weights")
    parser.add_argument("--dtype", default="f32", help="as in volta --dtype")
    parser.add_argument("--llama-bench", help="the program")
    parser.add_argument("--gguf", help="its model (default: --model, where that is a .gguf file)")
    parser.add_argument("--llama-args", default="", help="more arguments for it")
    parser.add_argument("--threads", type=measuring.numbers, default=[1, 2])
    parser.add_argument("--prompt", type=measuring.numbers, default=[128, 512])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", choices=["text", "json"], default="text")
    parser.add_argument("--volta", default=measuring.VOLTA)
    parser.add_argument("--machine", default=measuring.MACHINE)
    options = parser.parse_args()
    if options.gguf is None and options.model.endswith(".gguf"):
        options.gguf = options.model
    if options.llama_bench and options.gguf is None:
        parser.error("--llama-bench needs --gguf FILE: it reads no model folders")
    return options


def run(command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{shlex.join(command)} ended with {result.returncode}:\n{result.stderr}")
    return json.loads(result.stdout)


def volta_round(options, threads):
    """tokens/s by test, and the bytes of weights a token reads."""
    lengths = ",".join(str(length) for length in [1] + options.prompt)
    report = run([options.volta, "bench", "model", options.model, "--prompt", lengths, "--tokens",
                  str(options.tokens + 1), "--runs", "1", "--warmup", "1", "--weights",
                  options.weights, "--dtype", options.dtype, "--threads", str(threads), "--output",
                  "json"])
    rates = {}
    for prompt in report["prompts"]:
        if prompt["prompt"] == 1:
            rates[f"tg{options.tokens}"] = prompt["decode_tokens_per_s"]
        else:
            rates[f"pp{prompt['prompt']}"] = prompt["prefill_tokens_per_s"]
    return rates, report["bytes_per_token"]


def llama_round(options, threads):
    report = run([options.llama_bench, "-m", options.gguf, "-p",
                  ",".join(str(length) for length in options.prompt), "-n", str(options.tokens),
                  "-t", str(threads), "-r", "1", "-o", "json"] + shlex.split(options.llama_args))
    return {f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}": row["avg_ts"]
            for row in report}


def measure(options, threads):
    """One report: the rounds of both, with the machine before and after."""
    tests = [f"pp{length}" for length in options.prompt] + [f"tg{options.tokens}"]
    volta = {test: [] for test in tests}
    llama = {test: [] for test in tests}
    before = measuring.memory_state(options.machine, threads)
    for _ in range(options.rounds):
        rates, bytes_per_token = volta_round(options, threads)
        for test in tests:
            volta[test].append(rates[test])
        if options.llama_bench:
            rates = llama_round(options, threads)
            for test in tests:
                llama[test].append(rates[test])
    after = measuring.memory_state(options.machine, threads)
    report = {"threads": threads, "weights": options.weights, "dtype": options.dtype,
              "rounds": options.rounds, "bytes_per_token": bytes_per_token, "before": before,
              "after": after, "tests": {}}
    ceiling = measuring.read_ceiling(before, after)
    for test in tests:
        row = {"volta": measuring.summary(volta[test])}
        if options.llama_bench:
            row["llama_bench"] = measuring.summary(llama[test])
            row["ratio"] = row["volta"]["median"] / row["llama_bench"]["median"]
        if test.startswith("tg"):
            row["volta_gb_per_s"] = row["volta"]["median"] * bytes_per_token * 1e-9
            if ceiling:
                row["volta_read_share"] = row["volta_gb_per_s"] / ceiling
        report["tests"][test] = row
    return report


def to_text(report):
    lines = [f"# {report['threads']} threads, weights {report['weights']}, {report['rounds']} "
             "rounds; tokens/s: median (10th..90th percentile)",
             measuring.state_in_words("before", report["before"])]
    for test, row in report["tests"].items():
        line = f"{test:>6}  volta {measuring.in_words(row['volta'])}"
        if "ratio" in row:
            line += (f"  llama-bench {measuring.in_words(row['llama_bench'])}"
                     f"  {row['ratio']:.2f}x")
        if "volta_gb_per_s" in row:
            line += f"  {row['volta_gb_per_s']:.1f} GB/s of weights"
        if "volta_read_share" in row:
            line += f" ({100 * row['volta_read_share']:.0f}% of reading)"
        lines.append(line)
    return "\n".join(lines + [measuring.state_in_words("after", report["after"])])


def main():
    options = parse_arguments()
    reports = []
    for threads in options.threads:
        reports.append(measure(options, threads))
        if options.output == "text":
            print(to_text(reports[-1]), flush=True)
    if options.output == "json":
        print(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
