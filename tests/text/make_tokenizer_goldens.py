#!/usr/bin/env python3
"""Writes tests/text/data/*.json: small tokenizers of every kind, and what Hugging Face tokenizers
makes of some texts with them.

    pip install tokenizers==0.23.3
    tests/text/make_tokenizer_goldens.py TEXT    # any text to train on, e.g. README.md
"""
import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
EXTRA = "Привет мир, как дела? 你好世界 émigré naïve Ünïcödé 한국어 🎉🎊 ½ ² 12345 3.14 foo_bar(baz);"
TEXTS = [
    "", " ", "Hello, world!", "  leading and trailing  ", "I'll say we've, they'd; don't SHOUT'S",
    "naïve café e\u0301 \u212b \ufb01 ﷺ İstanbul", "你好，世界 𠀀 日本語テキスト", "👨‍👩‍👧 🎉🎊",
    "tabs\tand\n\nnewlines\r\n \n x", "1234567 3.14 ½", "x\u00a0y\u3000z\u200b\u0085w\u180ev",
    "<s>inside</s> <|begin_of_text|>text  <|strip|>  [MASK] foo_bar sword word <unk>", "'ſ 'S it'ſ",
    "Привет, как дела?", "\x00\x07\x7f\ufffd\ufeff", "a" * 200, "\u1100\u1161\u11a8 각 \u0915\u093c",
    "don't ''s  'll the quick brown fox", "\U0003213d \U00010d50 \U00016ea0 \u1c89 Ⅷ ⓐ ⁂", "<0x41> ▁x▁",
]


def train(model, trainer, **parts):
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    tokenizer.train_from_iterator(text.split("\n") + [EXTRA] * 5, trainer)
    return tokenizer


def byte_level(specials, **parts):
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=specials, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    return train(models.BPE(), trainer, decoder=decoders.ByteLevel(), **parts)


def byte_fallback(**parts):
    specials = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=480, limit_alphabet=50, show_progress=False,
        special_tokens=specials + [f"<0x{byte:02X}>" for byte in range(256)])
    model = {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}
    trained = json.loads(train(models.BPE(**model), trainer,
                               pre_tokenizer=pre_tokenizers.Metaspace()).to_str())
    trained["added_tokens"] = trained["added_tokens"][:3]
    trained["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(trained))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def tokenizers():
    yield "gpt2", byte_level(["<|endoftext|>"], normalizer=normalizers.NFC(),
                             pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False))
    llama3 = byte_level(["<|begin_of_text|>"], pre_tokenizer=pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    text = json.loads(llama3.to_str())
    text["model"]["ignore_merges"] = True
    llama3 = Tokenizer.from_str(json.dumps(text))
    llama3.add_special_tokens([AddedToken("<|strip|>", lstrip=True, rstrip=True)])
    llama3.add_tokens(["foo_bar", AddedToken("word", single_word=True)])
    llama3.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A",
                                      special_tokens=[("<|begin_of_text|>", 0)])])
    yield "llama3", llama3
    yield "llama2", byte_fallback(normalizer=normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]))
    yield "mistral", byte_fallback(pre_tokenizer=pre_tokenizers.Metaspace("▁", "first", False))
    bert = train(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30),
                 trainers.WordPieceTrainer(vocab_size=400, show_progress=False,
                                           special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]"]),
                 normalizer=normalizers.BertNormalizer(), decoder=decoders.WordPiece(),
                 pre_tokenizer=pre_tokenizers.BertPreTokenizer())
    bert.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    yield "bert", bert
    yield "unigram", train(
        models.Unigram(), trainers.UnigramTrainer(vocab_size=400, special_tokens=["<unk>", "<s>"],
                                                  unk_token="<unk>", show_progress=False),
        normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
        pre_tokenizer=pre_tokenizers.Metaspace(), decoder=decoders.Metaspace())
    yield "suffix", train(
        models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>"),
        trainers.BpeTrainer(vocab_size=300, special_tokens=["[UNK]"], end_of_word_suffix="</w>",
                            limit_alphabet=60, show_progress=False),
        normalizer=normalizers.Sequence([normalizers.Strip(), normalizers.NFKD(),
                                         normalizers.StripAccents(), normalizers.Lowercase(),
                                         normalizers.Nmt()]),
        pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Whitespace(),
                                               pre_tokenizers.Digits(individual_digits=True)]),
        decoder=decoders.BPEDecoder())
    general = train(
        models.WordLevel(unk_token="<unk>"),
        trainers.WordLevelTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False),
        normalizer=normalizers.Replace(Regex(r"\s+"), " "),
        pre_tokenizer=pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(r"\p{L}+"), "merged_with_next", invert=True),
            pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Split("th", "removed")]))
    yield "general", general


def main():
    folder = pathlib.Path(__file__).parent / "data"
    for name, tokenizer in tokenizers():
        cases = []
        for text in TEXTS:
            ids = tokenizer.encode(text).ids
            cases.append({
                "text": text, "prompt_ids": ids,
                "ids": tokenizer.encode(text, add_special_tokens=False).ids,
                "decoded": tokenizer.decode(ids),
                "decoded_all": tokenizer.decode(ids, skip_special_tokens=False)})
        golden = {"tokenizer": json.loads(tokenizer.to_str()), "cases": cases}
        path = folder / f"{name}_tokenizer.json"
        path.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
