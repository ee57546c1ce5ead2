"""Makes tests/train/data/chat_llama: a tiny model with a tokenizer and a chat template,
conversations, what transformers makes of these (ids, and which are answers), and the losses of 20
AdamW updates of PyTorch on them, packed, shuffled and masked as `volta train` does it
(chat_reference.py). Needs torch and transformers.

    python tests/interop/make_chat_golden.py TOKENIZER_JSON

TOKENIZER_JSON is a small one with the tokens <|im_start|> and <|im_end|>.
"""
import json
import pathlib
import shutil
import sys

import common
import chat_reference as reference

torch, transformers = common.need("torch", "transformers")
FOLDER = pathlib.Path(__file__).parent.parent / "train" / "data" / "chat_llama"


def main():
    torch.manual_seed(1)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    shutil.copyfile(sys.argv[1], FOLDER / "tokenizer.json")
    (FOLDER / "chat_template.jinja").write_text(reference.PLAIN_TEMPLATE)
    (FOLDER / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}) + "\n")
    lines = reference.conversations()
    (FOLDER / "chats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(FOLDER / "tokenizer.json"))
    examples = reference.examples_of(lines, tokenizer)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=4, max_position_embeddings=128,
        initializer_range=0.2, tie_word_embeddings=True))
    model.save_pretrained(FOLDER)
    (FOLDER / "generation_config.json").unlink(missing_ok=True)
    rows = reference.pack(examples)
    losses = reference.train(model, rows, learning_rate=1e-2)
    (FOLDER / "golden.json").write_text(json.dumps(
        {"ids": [ids for ids, _ in examples], "answers": [list(m) for _, m in examples],
         "rows": len(rows), "losses": losses}) + "\n")
    print(len(rows), "rows,", losses[0], losses[-1], "with torch", torch.__version__)


main()
