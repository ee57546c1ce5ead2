"""Fine-tuning on conversations from end to end, as a user would do it, beside PyTorch and peft.

    python tests/interop/chat.py --volta build/release/volta

For two tiny models (a Llama, and a Qwen 2 that is made here): `volta train` reads JSON lines and
tunes all weights, then a LoRA adapter. Compared are the masked losses of 20 updates with PyTorch's,
what transformers and peft make of the results, and the answers of the merged model. Ends with 0
when all agree, 1 when something does not, 77 (skipped) without torch, transformers or peft.
"""
import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import common

torch, transformers, peft = common.need("torch", "transformers", "peft")
import chat_reference as reference  # noqa: E402 (needs torch)

DATA = pathlib.Path(__file__).resolve().parents[1] / "train" / "data" / "chat_llama"
LOSS_TOLERANCE = 1e-5
LOGITS_TOLERANCE = 1e-4  # Of the largest |logit|.
LORA = ["--lora-rank", 4, "--lora-alpha", 8, "--lora-targets", "all-linear"]


def make_qwen(folder):
    """A model with biases of q, k and v, and the tokenizer and template of DATA."""
    shutil.copytree(DATA, folder, copy_function=shutil.copyfile,
                    ignore=shutil.ignore_patterns("golden.json", "chats.jsonl"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        initializer_range=0.1, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id))
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                value.normal_(std=0.1)
    model.save_pretrained(folder)


class Trial:
    """One model: what Volta is asked to do with it, and what the others make of that."""

    def __init__(self, volta, base, work, learning_rate, report):
        self.volta, self.base, self.work, self.report = volta, base, work, report
        self.learning_rate = learning_rate
        lines = reference.conversations() * 3
        self.data = work / "chats.jsonl"
        self.data.write_text("".join(json.dumps(line) + "\n" for line in lines))
        tokenizer = transformers.AutoTokenizer.from_pretrained(base)
        self.rows = reference.pack(reference.examples_of(lines, tokenizer))
        self.ids = torch.randint(0, len(tokenizer), (2, 24))

    def near(self, what, error, tolerance):
        self.report.near(f"{self.base.name}: {what}", error, tolerance)

    def holds(self, what, good, detail=""):
        self.report.holds(f"{self.base.name}: {what}", good, detail)

    def logits(self, folder, *more):
        return self.volta.logits(folder, self.ids, self.work, *more)

    def relative(self, ours, model):
        return common.relative(ours, common.logits_of(model, self.ids))

    def train(self, name, *more):
        """The folder of a run with a checkpoint of every step, and the loss before each update."""
        out = self.work / name
        self.volta.run(
            "train", "--init", self.base, "--data", self.data, "--out", out,
            "--context", reference.TIME, "--batch", reference.BATCH,
            "--accumulate", reference.ACCUMULATE, "--steps", reference.STEPS,
            "--seed", reference.SEED, "--schedule", "constant", "--warmup", 0,
            "--lr", self.learning_rate, "--beta1", reference.BETAS[0], "--beta2", reference.BETAS[1],
            "--weight-decay", reference.WEIGHT_DECAY, "--clip", reference.CLIP,
            "--val-fraction", 0, "--packing", "--save-every", 1, "--keep", 0, *more)
        lines = (out / "metrics.jsonl").read_text().splitlines()
        return out, [json.loads(line)["loss"] for line in lines]

    def compare_losses(self, what, ours, theirs):
        self.holds(f"{what}: a loss for every step", len(ours) == len(theirs))
        error = max(abs(a - b) for a, b in zip(ours, theirs))
        self.near(f"{what}: the masked losses of {len(theirs)} steps are PyTorch's", error,
                  LOSS_TOLERANCE)
        self.holds(f"{what}: the loss falls", ours[-1] < ours[0] - 0.1,
                   f"{ours[0]:.3f} to {ours[-1]:.3f}")

    def all_weights(self):
        run, losses = self.train("all")
        theirs = common.open_model(self.base)
        self.compare_losses("all weights", losses,
                            reference.train(theirs, self.rows, self.learning_rate))
        checkpoint = run / f"step-{reference.STEPS}"
        opened = common.open_model(checkpoint)
        trained = common.logits_of(opened, self.ids)
        self.near("all weights: those of PyTorch after as many steps",
                  self.relative(trained, theirs), LOGITS_TOLERANCE)
        self.near("all weights: the checkpoint in transformers",
                  common.relative(self.logits(run), trained), LOGITS_TOLERANCE)
        self.same_tokenizer(checkpoint)

    def same_tokenizer(self, folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        text = "<|im_start|>user\nTell me 0 of a king<|im_end|>\n"
        ours = self.volta.json("tokenize", folder, text, "--no-special")["ids"]
        self.holds("the checkpoint's tokenizer in transformers",
                   tokenizer(text, add_special_tokens=False)["input_ids"] == ours)
        self.holds("the checkpoint has the chat template",
                   tokenizer.chat_template == reference.PLAIN_TEMPLATE)

    def fresh_adapter(self):
        """Volta's fresh adapter in peft. A is drawn by the seed; B is zero before the first step."""
        run, _ = self.train("fresh", *LORA, "--steps", 1, "--lr", 1e-30)
        adapter = peft.PeftModel.from_pretrained(common.open_model(self.base), run / "step-1",
                                                 is_trainable=True)
        with torch.no_grad():
            for name, value in adapter.named_parameters():
                if "lora_B" in name:
                    value.zero_()
        return adapter

    def in_peft(self, run, step):
        return peft.PeftModel.from_pretrained(common.open_model(self.base), run / f"step-{step}").eval()

    def adapter(self):
        run, losses = self.train("lora", *LORA)
        theirs = self.fresh_adapter()
        self.compare_losses("LoRA", losses, reference.train(theirs, self.rows, self.learning_rate))
        worst = 0.0
        with torch.no_grad():
            for step in range(1, reference.STEPS):
                batches = reference.batches_of(self.rows, step)
                loss = reference.step_loss(self.in_peft(run, step), batches, backward=False)
                worst = max(worst, abs(loss - losses[step]))
        self.near("LoRA: the masked losses of Volta's adapters in peft", worst, LOSS_TOLERANCE)
        trained = self.in_peft(run, reference.STEPS)
        self.near("LoRA: the weights of peft after as many steps",
                  self.relative(common.logits_of(trained, self.ids), theirs), LOGITS_TOLERANCE)
        self.near("LoRA: volta logits --adapter",
                  self.relative(self.logits(self.base, "--adapter", run), trained), LOGITS_TOLERANCE)
        by_itself = peft.AutoPeftModelForCausalLM.from_pretrained(
            run / f"step-{reference.STEPS}", dtype=torch.float32).eval()
        self.near("LoRA: the adapter in peft by its own base path",
                  self.relative(common.logits_of(by_itself, self.ids), trained), LOGITS_TOLERANCE)
        self.merged(run, trained)

    def merged(self, run, trained):
        folder = self.work / "merged"
        self.volta.run("merge", self.base, "--adapter", run, "--out", folder)
        opened = common.open_model(folder)
        self.near("merged: in transformers", self.relative(common.logits_of(opened, self.ids), trained),
                  LOGITS_TOLERANCE)
        self.near("merged: in volta logits", self.relative(self.logits(folder), opened),
                  LOGITS_TOLERANCE)
        weights = trained.merge_and_unload().state_dict()
        worst = max((weights[name] - value).abs().max().item()
                    for name, value in opened.state_dict().items())
        self.near("merged: the weights are those that peft merges", worst, 1e-6)
        self.same_answer(folder, opened)

    def same_answer(self, folder, model):
        question = "Tell me 0 of a king"
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}],
                                               add_generation_prompt=True, return_tensors="pt",
                                               return_dict=True)
        made = model.generate(**prompt, max_new_tokens=12, do_sample=False)
        theirs = tokenizer.decode(made[0][prompt["input_ids"].shape[1]:], skip_special_tokens=True)
        ours = self.volta.json("chat", folder, "-p", question, "-n", 12, "--temperature", 0)["content"]
        self.holds("merged: the same greedy answer", ours == theirs, f"{ours!r}, {theirs!r}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--volta", required=True)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(1)
    torch.set_num_threads(2)
    report = common.Report()
    volta = common.Volta(arguments.volta)
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        shutil.copytree(DATA, work / "llama", copy_function=shutil.copyfile)
        make_qwen(work / "qwen2")
        for name, learning_rate in (("llama", 1e-2), ("qwen2", 1e-3)):
            place = work / f"{name}-runs"
            place.mkdir()
            trial = Trial(volta, work / name, place, learning_rate, report)
            trial.all_weights()
            trial.adapter()
    sys.exit(report.failed)


if __name__ == "__main__":
    main()
