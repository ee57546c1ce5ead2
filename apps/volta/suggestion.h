// What somebody may have meant by a word that the command line does not know.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace volta::cli {

/// The option here that does what `word` does in llama.cpp, mlx-lm, nanoGPT or transformers; else
/// the word of `known` that is spelled most like it. Empty where nothing comes near. A value behind
/// "=" does not count.
std::string suggestion(std::string_view word, std::span<const std::string> known);

}  // namespace volta::cli
