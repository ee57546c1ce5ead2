// Data that lies beside the source tree and is not part of it: model folders and texts made by
// others. Tests that need it skip where it is absent.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace volta::test {

/// The path of an entry of the shared folder: VOLTA_SHARED, or `../shared` beside the sources.
std::string shared_path(std::string_view name);
/// The path of a file of the source tree.
std::string source_path(std::string_view name);

inline bool has_shared(std::string_view name) { return std::filesystem::exists(shared_path(name)); }

/// The folder of a tiny Llama with a tokenizer and a context of 128 tokens, for tests that need any
/// model: one of the shared folder, or else that of the source tree.
inline std::string tiny_llama_path() {
  return has_shared("models/llama-tiny/model.safetensors")
             ? shared_path("models/llama-tiny")
             : source_path("tests/train/data/chat_llama");
}

}  // namespace volta::test

/// Ends the test as skipped, naming what is missing.
#define VOLTA_NEEDS_SHARED(name)                           \
  if (!volta::test::has_shared(name))                      \
  GTEST_SKIP() << volta::test::shared_path(name) << " is " \
               << "missing; set VOLTA_SHARED"
