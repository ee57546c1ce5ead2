// What the trainer's tests share: a model small enough to train in milliseconds, and its data.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "device/helpers.h"
#include "nn/transformer.h"
#include "support/assert_ok.h"  // IWYU pragma: export
#include "train/run_options.h"
#include "train/trainer.h"

namespace volta::test {

/// 2 layers, 16 wide, context 8, 13 tokens.
inline TransformerConfig small_config() {
  return {.vocab_size = 13,
          .context = 8,
          .layers = 2,
          .dim = 16,
          .heads = 2,
          .kv_heads = 2,
          .head_dim = 8,
          .ffn = 32};
}

inline TrainerOptions small_options() {
  TrainerOptions o;
  o.batch = 4;
  o.time = 8;
  o.optimizer.weight_decay = 0.1f;
  o.optimizer.clip = 1.0f;
  o.schedule = {.lr = 1e-2, .min_lr = 1e-3, .warmup = 3, .steps = 20};
  return o;
}

/// `count` token ids below `vocab` with some structure to learn.
inline std::shared_ptr<const std::vector<std::int32_t>> small_tokens(std::size_t count,
                                                                     std::uint32_t vocab = 13) {
  auto tokens = std::make_shared<std::vector<std::int32_t>>();
  RandomSequence random(RandomKey{.seed = 5});
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < count; ++i) {
    last = (last + 1 + random.next_below(3)) % vocab;
    tokens->push_back(static_cast<std::int32_t>(last));
  }
  return tokens;
}

inline void put_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}
inline std::string get_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A few kilobytes of text that repeats itself with variations.
inline std::string small_text(std::size_t bytes = 3000) {
  static const std::vector<std::string> words = {"the ", "cat ", "sat ", "on ", "a ", "mat. "};
  std::string text;
  RandomSequence random(RandomKey{.seed = 9});
  while (text.size() < bytes) text += words[random.next_below(6)];
  return text;
}

/// Options of a run that takes a fraction of a second; data and out are for the caller.
inline RunOptions small_run() {
  RunOptions o;
  o.tokenizer = "char";
  o.model = small_config();
  o.trainer = small_options();
  o.trainer.time = 0;
  o.eval_every = 5;
  o.eval_batches = 2;
  o.save_every = 5;
  return o;
}

/// Every element of every tensor, as bits.
inline std::map<std::string, std::vector<std::uint8_t>> bits_of(
    const std::map<std::string, Tensor>& tensors) {
  std::map<std::string, std::vector<std::uint8_t>> out;
  for (const auto& [name, tensor] : tensors) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(tensor.bytes()));
    EXPECT_TRUE(tensor.read_bytes(std::as_writable_bytes(std::span(bytes))));
    out.emplace(name, std::move(bytes));
  }
  return out;
}

}  // namespace volta::test
