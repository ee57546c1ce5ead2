"""What transformers makes of a row of logits before it draws: data/sampling.json for sample_test.cc.

Run where Python has torch and transformers: python make_sampling_goldens.py
"""

import json
import pathlib

import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

VOCABULARY = 96
CASES = [
    {},
    {"temperature": 0.6},
    {"repetition": 1.4},
    {"repetition": 0.7, "temperature": 1.7},
    {"top_k": 12},
    {"top_p": 0.8},
    {"min_p": 0.06},
    {"top_k": 30, "top_p": 0.9},
    {"temperature": 1.3, "top_k": 40, "min_p": 0.1},
    {"temperature": 0.7, "top_k": 25, "top_p": 0.85, "min_p": 0.02, "repetition": 1.2},
]


def processors(case):
    chain = LogitsProcessorList()
    if "repetition" in case:
        chain.append(RepetitionPenaltyLogitsProcessor(case["repetition"]))
    if "temperature" in case:
        chain.append(TemperatureLogitsWarper(case["temperature"]))
    if "top_k" in case:
        chain.append(TopKLogitsWarper(case["top_k"]))
    if "top_p" in case:
        chain.append(TopPLogitsWarper(case["top_p"]))
    if "min_p" in case:
        chain.append(MinPLogitsWarper(case["min_p"]))
    return chain


def main():
    torch.manual_seed(7)
    logits = (2.0 * torch.randn(VOCABULARY)).float()
    prompt = torch.randint(0, VOCABULARY, (20,))
    output = torch.randint(0, VOCABULARY, (12,))
    ids = torch.cat([prompt, output])[None]
    cases = []
    for case in CASES:
        scores = processors(case)(ids, logits[None].double().clone())
        probabilities = torch.softmax(scores, dim=-1)[0]
        cases.append(case | {"probabilities": probabilities.tolist()})
    golden = {
        "logits": logits.double().tolist(),
        "prompt": prompt.tolist(),
        "output": output.tolist(),
        "cases": cases,
    }
    path = pathlib.Path(__file__).parent / "data" / "sampling.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
