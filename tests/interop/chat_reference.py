"""What transformers and PyTorch make of conversations: ids, answers, rows and the losses of updates.

`volta train` shuffles and packs by the same rules; they are written here a second time.
"""
import common

torch = common.need("torch")

TIME, BATCH, ACCUMULATE, STEPS, SEED = 96, 2, 2, 20, 7
BETAS, WEIGHT_DECAY, CLIP = (0.9, 0.95), 0.1, 1.0
SHUFFLE_STREAM = 0xBA7C0003
MASK32 = 0xFFFFFFFF

# {% generation %} marks the answers for transformers; the file for Volta has no such marks.
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' }}"
    "{% endgeneration %}{{ '\n' }}{% else %}{{ m['content'] + '<|im_end|>\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
PLAIN_TEMPLATE = TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
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


def examples_of(lines, tokenizer):
    """(ids, which of them are answers) of every conversation."""
    examples = []
    for line in lines:
        made = tokenizer.apply_chat_template(as_messages(line), chat_template=TEMPLATE,
                                             tokenize=True, return_dict=True,
                                             return_assistant_tokens_mask=True)
        examples.append((made["input_ids"], made["assistant_masks"]))
    return examples


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


def batches_of(rows, step):
    """The micro-batches of a step."""
    batches = []
    for micro in range(ACCUMULATE):
        places = [(step * ACCUMULATE + micro) * BATCH + row for row in range(BATCH)]
        batches.append([rows[shuffled(len(rows), place // len(rows))[place % len(rows)]]
                        for place in places])
    return batches


def step_loss(model, batches, backward):
    """The mean loss of all answer tokens of a step; with its gradient, if backward."""
    count = sum(target >= 0 for batch in batches for row in batch for target in row[1])
    total = 0.0
    for batch in batches:
        logits = model(torch.tensor([row[0] for row in batch])).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), torch.tensor([row[1] for row in batch]).flatten(),
            ignore_index=-100, reduction="sum") / count
        if backward:
            loss.backward()
        total += loss.item()
    return total


def train(model, rows, learning_rate):
    """Updates the model with AdamW, STEPS times; the loss before every update."""
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in parameters if p.dim() >= 2]
    others = [p for p in parameters if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=learning_rate, betas=BETAS, eps=1e-8)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        losses.append(step_loss(model, batches_of(rows, step), backward=True))
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
    model.eval()
    return losses
