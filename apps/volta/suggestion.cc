#include "suggestion.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <vector>

namespace volta::cli {
namespace {

struct ForeignOption {
  std::string_view theirs;
  std::string_view ours;
};

// Options of other programs, spelled with hyphens, and ours. Ours is suggested only to commands
// that have it.
constexpr std::array kForeignOptions = {
    ForeignOption{"--n-predict", "--tokens"},
    ForeignOption{"--predict", "--tokens"},
    ForeignOption{"--max-tokens", "--tokens"},
    ForeignOption{"--max-new-tokens", "--tokens"},
    ForeignOption{"--num-tokens", "--tokens"},
    ForeignOption{"--n-gpu-layers", "--device"},
    ForeignOption{"--gpu-layers", "--device"},
    ForeignOption{"-ngl", "--device"},
    ForeignOption{"--repeat-penalty", "--repetition-penalty"},
    ForeignOption{"--lora", "--adapter"},
    ForeignOption{"--adapter-path", "--adapter"},
    ForeignOption{"--system-prompt", "--system"},
    ForeignOption{"-sys", "--system"},
    ForeignOption{"--cache-type-k", "--kv-cache-dtype"},
    ForeignOption{"--cache-type-v", "--kv-cache-dtype"},
    ForeignOption{"--max-kv-size", "--context"},
    ForeignOption{"--block-size", "--context"},
    ForeignOption{"--seq-len", "--context"},
    ForeignOption{"--max-seq-length", "--context"},
    ForeignOption{"--learning-rate", "--lr"},
    ForeignOption{"--batch-size", "--batch"},
    ForeignOption{"--per-device-train-batch-size", "--batch"},
    ForeignOption{"--gradient-accumulation-steps", "--accumulate"},
    ForeignOption{"--grad-accumulation-steps", "--accumulate"},
    ForeignOption{"--max-iters", "--steps"},
    ForeignOption{"--iters", "--steps"},
    ForeignOption{"--max-steps", "--steps"},
    ForeignOption{"--eval-interval", "--eval-every"},
    ForeignOption{"--steps-per-eval", "--eval-every"},
    ForeignOption{"--eval-iters", "--eval-batches"},
    ForeignOption{"--save-every-steps", "--save-every"},
    ForeignOption{"--save-steps", "--save-every"},
    ForeignOption{"--warmup-iters", "--warmup"},
    ForeignOption{"--warmup-steps", "--warmup"},
    ForeignOption{"--grad-clip", "--clip"},
    ForeignOption{"--max-grad-norm", "--clip"},
    ForeignOption{"--n-layer", "--layers"},
    ForeignOption{"--n-head", "--heads"},
    ForeignOption{"--n-embd", "--dim"},
    ForeignOption{"--hidden-size", "--dim"},
    ForeignOption{"--out-dir", "--out"},
    ForeignOption{"--output-dir", "--out"},
    ForeignOption{"--dataset", "--data"},
    ForeignOption{"--train-file", "--data"},
    ForeignOption{"--init-from", "--init"},
    ForeignOption{"--num-threads", "--threads"},
    ForeignOption{"--outtype", "--type"},
    ForeignOption{"--n-prompt", "--prompt"},
    ForeignOption{"--repetitions", "--runs"},
    ForeignOption{"--num-train-epochs", "--epochs"},
    ForeignOption{"-V", "--version"},
    ForeignOption{"-s", "--seed"},
    ForeignOption{"-p", "--prompt"},
    ForeignOption{"-n", "--tokens"},
    ForeignOption{"-r", "--runs"},
    ForeignOption{"-o", "--out"},
    ForeignOption{"-b", "--batch"},
};

// The number of characters to insert, remove or replace to turn one word into the other
// (Levenshtein).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string suggestion(std::string_view word, std::span<const std::string> known) {
  constexpr std::size_t kLongestWord = 64;
  std::string spelled(word.substr(0, word.find('=')));
  if (spelled.size() > kLongestWord) return "";
  std::ranges::replace(spelled, '_', '-');
  for (const ForeignOption& option : kForeignOptions) {
    if (option.theirs != spelled) continue;
    const auto ours = std::ranges::find(known, option.ours);
    if (ours != known.end()) return *ours;
  }
  // A third of a word may be wrong, and one pair of letters swapped. A word like "-x" is similar to
  // none.
  std::size_t nearest = spelled.size() / 3 + (spelled.size() > 3 ? 2 : 1);
  std::string found;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(spelled, candidate);
    if (distance >= nearest) continue;
    nearest = distance;
    found = candidate;
  }
  return found;
}

}  // namespace volta::cli
