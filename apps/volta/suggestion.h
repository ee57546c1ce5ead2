// Suggests what the user may have meant by a word that the command line does not know.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace volta::cli {

/// The option in `known` that does what `word` does in llama.cpp, mlx-lm, nanoGPT or transformers;
/// otherwise the word in `known` with the most similar spelling. Empty when none is similar. A
/// value after "=" is ignored.
std::string suggestion(std::string_view word, std::span<const std::string> known);

/// What to do instead of an option of those programs that Volta lacks, as "check the text ...".
/// Empty for other words, and for options that the command with the words `known` has no use for.
std::string_view substitute(std::string_view word, std::span<const std::string> known);

}  // namespace volta::cli
