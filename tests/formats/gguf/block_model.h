// Small Llamas in GGUF files whose matrices are random blocks of integers.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/gguf/ggml_types.h"
#include "formats/gguf/gguf_writer.h"
#include "tensor/float16.h"

namespace volta::test {

inline constexpr std::int64_t kVocab = 48, kDim = 256, kFfn = 512;
inline constexpr std::int64_t kLayers = 2;

// The element type of each matrix, by its name in the file.
using TypeOf = std::function<GgmlType(const std::string& tensor)>;

// Whole blocks of random integers whose values are of the size of trained weights.
inline std::vector<std::byte> random_blocks(GgmlType type, std::int64_t values,
                                            std::mt19937& random) {
  const GgmlTypeInfo& info = ggml_type_info(type);
  const auto size = static_cast<std::size_t>(info.block_bytes);
  std::vector<std::byte> bytes(static_cast<std::size_t>(values / info.block_values) * size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 256);
  const auto put_half = [&](std::size_t at, float value) {
    const std::uint16_t bits = f16_from_f32(value);
    bytes[at] = static_cast<std::byte>(bits & 0xFF);
    bytes[at + 1] = static_cast<std::byte>(bits >> 8);
  };
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    const float size_of_one = 1.0f + static_cast<float>(random() % 100) / 100.0f;
    if (type == GgmlType::kQ8_0) put_half(at, 4e-4f * size_of_one);
    if (type == GgmlType::kQ4_0) put_half(at, 6e-3f * size_of_one);
    if (type == GgmlType::kQ4_K) {
      put_half(at, 2e-4f * size_of_one);
      put_half(at + 2, 15e-4f * size_of_one);
    }
    if (type == GgmlType::kQ5_K) {
      put_half(at, 1e-4f * size_of_one);
      put_half(at + 2, 15e-4f * size_of_one);
    }
    if (type == GgmlType::kQ6_K) put_half(at + 208, 3e-5f * size_of_one);
  }
  return bytes;
}

// A Llama of two layers, 256 wide, with an output of its own unless it is tied.
inline void write_block_model(const std::string& path, const TypeOf& type_of, bool tied) {
  GgufMetadata metadata;
  metadata.add_string("general.architecture", "llama");
  const auto size = [&](std::string_view key, std::int64_t value) {
    metadata.add_u32("llama." + std::string(key), static_cast<std::uint32_t>(value));
  };
  size("context_length", 64);
  size("embedding_length", kDim);
  size("block_count", kLayers);
  size("feed_forward_length", kFfn);
  size("attention.head_count", 4);
  size("attention.head_count_kv", 2);
  metadata.add_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  std::vector<GgufTensorSpec> tensors;
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    tensors.push_back({name + ".weight", type_of(name), Shape(rows, columns)});
  };
  const auto vector = [&](const std::string& name) {
    tensors.push_back({name + ".weight", GgmlType::kF32, Shape(kDim)});
  };
  matrix("token_embd", kVocab, kDim);
  if (!tied) matrix("output", kVocab, kDim);
  vector("output_norm");
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    vector(block + "attn_norm");
    vector(block + "ffn_norm");
    matrix(block + "attn_q", kDim, kDim);
    matrix(block + "attn_k", kDim / 2, kDim);
    matrix(block + "attn_v", kDim / 2, kDim);
    matrix(block + "attn_output", kDim, kDim);
    matrix(block + "ffn_gate", kFfn, kDim);
    matrix(block + "ffn_up", kFfn, kDim);
    matrix(block + "ffn_down", kDim, kFfn);
  }
  std::mt19937 random(11);
  const auto write = [&](std::size_t i, GgufSink sink) -> Status {
    const GgufTensorSpec& tensor = tensors[i];
    if (tensor.shape.rank() == 2 && tensor.type != GgmlType::kF32) {
      return sink(random_blocks(tensor.type, tensor.shape.elements(), random));
    }
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()), 1.0f);
    std::normal_distribution<float> normal(0.0f, 0.05f);
    for (float& value : values) value = tensor.shape.rank() == 1 ? 1.0f : normal(random);
    return sink(std::as_bytes(std::span(values)));
  };
  const Status written = write_gguf(path, metadata, tensors, write);
  ASSERT_TRUE(written) << written.error().message();
}

inline TypeOf all_of(GgmlType type) {
  return [type](const std::string&) { return type; };
}

inline constexpr GgmlType kBlockTypes[] = {GgmlType::kQ8_0, GgmlType::kQ4_0, GgmlType::kQ4_K,
                                           GgmlType::kQ5_K, GgmlType::kQ6_K};

}  // namespace volta::test
