"""Makes tests/train/data/chat_llama: a tiny model with a tokenizer and a chat template,
conversations, what transformers makes of these (ids, and which are answers), and the losses of 20
AdamW updates of PyTorch on them, packed, shuffled and masked as `volta train` does it. The
shuffling and packing are written here a second time. Needs torch, transformers and safetensors.

    python tests/interop/make_chat_golden.py TOKENIZER_JSON

TOKENIZER_JSON is a small one with the tokens <|im_start|> and <|im_end|>.
"""
import json
import pathlib
import shutil
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

FOLDER = pathlib.Path(__file__).parent.parent / "train" / "data" / "chat_llama"
TIME, BATCH, ACCUMULATE, STEPS, SEED = 96, 2, 2, 20, 7
SHUFFLE_STREAM = 0xBA7C0003
MASK32 = 0xFFFFFFFF

# {% generation %} marks the answers for transformers; the file for Volta has no such marks.
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' }}"
    "{% endgeneration %}{{ '\n' }}{% else %}{{ m['content'] + '<|im_end|>\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
TOPICS = ["the sea", "a king", "bread", "rain", "two ships", "the moon", "old songs", "winter"]


def conversations():
    lines = []
    for i, topic in enumerate(TOPICS):
        messages = [{"role": "system", "content": "Be brief."}] if i % 3 == 0 else []
        for turn in range(1 + i % 3):
            messages.append({"role": "user", "content": f"Tell me {turn} of {topic}"})
            messages.append({"role": "assistant", "content": f"{topic}: " + "so it is. " * (turn + i % 4)})
        if i == 5:
            messages.append({"role": "user", "content": "And then?"})  # Not answered.
        lines.append({"messages": messages})
    for i in range(6):
        lines.append({"prompt": f"{i} and {i}?", "completion": f"It is {2 * i}."})
    lines.append({"prompt": [{"role": "user", "content": "Why?"}],
                  "completion": [{"role": "assistant", "content": "Because."}]})
    # Longer than a row: its answer is cut.
    lines.append({"prompt": "Say it", "completion": "again and again " * 12})
    return lines


def as_messages(line):
    if "messages" in line:
        messages = line["messages"]
        while messages[-1]["role"] != "assistant":
            messages = messages[:-1]
        return messages
    if isinstance(line["prompt"], str):
        return [{"role": "user", "content": line["prompt"]},
                {"role": "assistant", "content": line["completion"]}]
    return line["prompt"] + line["completion"]


def philox(key, counter):
    """Philox4x32-10 (Salmon et al., SC 2011)."""
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & MASK32,
                   (a >> 32) ^ counter[3] ^ key[1], a & MASK32]
        key = [(key[0] + 0x9E3779B9) & MASK32, (key[1] + 0xBB67AE85) & MASK32]
    return counter


def shuffled(count, epoch):
    order = list(range(count))
    for draw, left in enumerate(range(count, 1, -1)):
        high, low, _, _ = philox([SEED & MASK32, SEED >> 32], [draw, 0, SHUFFLE_STREAM, epoch])
        other = (((high << 32) | low) * left) >> 64
        order[left - 1], order[other] = order[other], order[left - 1]
    return order


def pack(examples):
    """First fit. An example takes a place for each token; its last token has no target."""
    rows, used = [], []
    for number in shuffled(len(examples), 0):
        ids, answer = examples[number]
        targets = [ids[i + 1] if answer[i + 1] else -100 for i in range(len(ids) - 1)] + [-100]
        ids, targets = ids[:TIME], targets[:TIME]
        row = next((r for r in range(len(rows)) if used[r] + len(ids) <= TIME), None)
        if row is None:
            row = len(rows)
            rows.append(([0] * TIME, [-100] * TIME))
            used.append(0)
        begin = used[row]
        rows[row][0][begin:begin + len(ids)] = ids
        rows[row][1][begin:begin + len(ids)] = targets
        used[row] += len(ids)
    return rows


def main():
    torch.manual_seed(1)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    shutil.copyfile(sys.argv[1], FOLDER / "tokenizer.json")
    plain = TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    (FOLDER / "chat_template.jinja").write_text(plain)
    (FOLDER / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}) + "\n")
    lines = conversations()
    (FOLDER / "chats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(FOLDER / "tokenizer.json"))
    examples = []
    for line in lines:
        made = tokenizer.apply_chat_template(as_messages(line), chat_template=TEMPLATE,
                                             tokenize=True, return_dict=True,
                                             return_assistant_tokens_mask=True)
        examples.append((made["input_ids"], made["assistant_masks"]))

    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=4, max_position_embeddings=128,
        initializer_range=0.2, tie_word_embeddings=True))
    model.save_pretrained(FOLDER)
    (FOLDER / "generation_config.json").unlink(missing_ok=True)
    model.train()
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    rows = pack(examples)
    losses = []
    for step in range(STEPS):
        batches = []
        for micro in range(ACCUMULATE):
            batch = []
            for row in range(BATCH):
                place = (step * ACCUMULATE + micro) * BATCH + row
                batch.append(rows[shuffled(len(rows), place // len(rows))[place % len(rows)]])
            batches.append(batch)
        count = sum(target >= 0 for batch in batches for row in batch for target in row[1])
        optimizer.zero_grad()
        total = 0.0
        for batch in batches:
            logits = model(torch.tensor([row[0] for row in batch])).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), torch.tensor([row[1] for row in batch]).flatten(),
                ignore_index=-100, reduction="sum") / count
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(total)
    (FOLDER / "golden.json").write_text(json.dumps(
        {"ids": [ids for ids, _ in examples], "answers": [list(m) for _, m in examples],
         "rows": len(rows), "losses": losses}) + "\n")
    print(len(rows), "rows,", losses[0], losses[-1], "with torch", torch.__version__)


main()
