"""Writes eval_golden.json: the losses of transformers' models on eval_text.txt.

    python make_eval_golden.py MODELS_FOLDER

Each case is a sum over windows of `context` inputs that begin `stride` tokens apart; a token is
scored in the first window that reaches it, as in Hugging Face's guide to perplexity (whose windows
count the predicted token in: its max_length is context + 1).
"""

import json
import math
import pathlib
import sys

import tokenizers
import torch
import transformers

HERE = pathlib.Path(__file__).parent
CASES = [(64, 64), (64, 16), (40, 1), (17, 5)]
MODELS = ["gpt2-tiny", "llama-tiny", "qwen2-tiny", "qwen3-tiny"]


def score(model, ids, context, stride):
    nats, tokens, windows, scored = 0.0, 0, 0, 1
    for begin in range(0, len(ids), stride):
        end = min(begin + context + 1, len(ids))
        window = torch.tensor([ids[begin:end]])
        labels = window.clone()
        labels[:, : scored - begin] = -100
        count = end - scored
        with torch.no_grad():
            loss = model(window[:, :-1]).logits.log_softmax(-1)
        picked = loss[0].gather(1, window[0, 1:, None])[:, 0]
        keep = labels[0, 1:] != -100
        assert int(keep.sum()) == count
        nats -= picked[keep].double().sum().item()
        tokens += count
        windows += 1
        scored = end
        if end == len(ids):
            return nats, tokens, windows
    raise AssertionError("the windows do not reach the end")


def main():
    text = (HERE / "eval_text.txt").read_bytes().decode()
    golden = []
    for name in MODELS:
        folder = pathlib.Path(sys.argv[1]) / name
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        model.eval()
        ids = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
        for context, stride in CASES:
            nats, tokens, windows = score(model, ids, context, stride)
            golden.append(
                {
                    "model": name,
                    "context": context,
                    "stride": stride,
                    "tokens": tokens,
                    "windows": windows,
                    "loss": nats / tokens,
                    "bits_per_byte": nats / math.log(2) / len(text.encode()),
                }
            )
        # The same once as the guide does it: labels in, a mean out.
        whole = torch.tensor([ids[:65]])
        if len(ids) >= 65 and model.config.max_position_embeddings >= 65:
            with torch.no_grad():
                mean = model(whole, labels=whole).loss.item()
            nats, tokens, _ = score(model, ids[:65], 64, 64)
            assert abs(nats / tokens - mean) < 1e-5, (nats / tokens, mean)
    lines = ",\n".join("  " + json.dumps(case) for case in golden)
    (HERE / "eval_golden.json").write_text(f"[\n{lines}\n]\n")


main()
