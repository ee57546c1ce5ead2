#include "suggestion.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace volta::cli {
namespace {

struct ForeignWord {
  std::string_view theirs;
  std::string_view ours;
  // What to do, for an option that Volta lacks. Such a hint is given only by commands that have the
  // option `ours`, because the others could not have that of the other program, either. Empty when
  // `ours` does the same.
  std::string_view instead = {};
};

// What to do without options that Volta lacks, as docs/guide/peers.md says it.
constexpr std::string_view kNewTextAlone = "--output json has the new text alone";
constexpr std::string_view kPenalties =
    "penalties have no window; --frequency-penalty and --presence-penalty count the new tokens "
    "alone";
constexpr std::string_view kSampling =
    "logit bias, typical, XTC, DRY and mirostat sampling are not built; --top-k, --top-p, --min-p "
    "and the penalties choose among tokens";
constexpr std::string_view kGrammars =
    "grammars are not built; check the text in your program and ask again with another --seed";
constexpr std::string_view kColors =
    "drop it: terminals get colours by themselves, unless NO_COLOR is set";
constexpr std::string_view kCheckpointing =
    "gradient checkpointing is not built; a smaller --batch with --accumulate, or a shorter "
    "--context, saves memory";
constexpr std::string_view kPacking =
    "drop it: a row holds one conversation unless --packing is given";
constexpr std::string_view kDora =
    "DoRA is not built; plain LoRA with --lora-targets all-linear adapts more of the model";
constexpr std::string_view kQlora =
    "training keeps weights as f32; LoRA (--lora-rank) trains few of them, and the base takes 4 "
    "bytes for each parameter";
constexpr std::string_view kDecayEnd =
    "the schedule ends with the run; train until the decay's end, then go on with --resume --steps "
    "MORE --schedule constant --lr LOWEST";
constexpr std::string_view kReports =
    "Volta opens no connections; --tensorboard, or metrics.jsonl in the run's folder, has the "
    "curves";
constexpr std::string_view kUpload =
    "Volta opens no connections; `hf upload ORGANISATION/NAME FOLDER` pushes a model";
constexpr std::string_view kConversation = "`volta chat MODEL` holds a conversation";
constexpr std::string_view kAlreadyChat = "drop it: volta chat holds a conversation by itself";
constexpr std::string_view kBeams =
    "beam search is not built; --temperature 0, or several --seed and --logprobs, choose among "
    "texts";
constexpr std::string_view kDrafts =
    "speculative decoding is not built; --weights q8 or q4 shortens the time per token";
constexpr std::string_view kPromptCache =
    "a prompt cache on disk is not built; prompts of one command share its loading, and volta chat "
    "computes only what is new in a prompt";
constexpr std::string_view kAdapterScale =
    "an adapter's scale is lora_alpha / r in its adapter_config.json; change lora_alpha in a copy "
    "of the adapter, and give that to --adapter";
constexpr std::string_view kEmbeddings =
    "embeddings are not built; the commands give tokens and logits (volta logits)";
constexpr std::string_view kPictures = "Volta runs models of text only";
constexpr std::string_view kSplit =
    "one model on several GPUs is not built; --device cuda, cuda:N or cpu takes all of it";
constexpr std::string_view kAttention =
    "drop it: attention is always computed without storing its scores";
constexpr std::string_view kCalibration =
    "calibration is not built; `volta quantize --data FILE` reports what quantising costs";
constexpr std::string_view kServers =
    "a server is not built; `volta chat` and `volta generate --prompts-file` work through a pipe";
constexpr std::string_view kDownloads =
    "Volta opens no connections; `hf download ORGANISATION/NAME` fetches a model, which is then "
    "found by its name";

// Options and commands of other programs, spelled with hyphens, and ours. An option of ours is
// suggested only to commands that have it.
constexpr std::array kForeignWords = {
    ForeignWord{"--n-predict", "--tokens"},
    ForeignWord{"--predict", "--tokens"},
    ForeignWord{"--max-tokens", "--tokens"},
    ForeignWord{"--max-new-tokens", "--tokens"},
    ForeignWord{"--num-tokens", "--tokens"},
    ForeignWord{"--num-predict", "--tokens"},
    ForeignWord{"--n-gpu-layers", "--device"},
    ForeignWord{"--gpu-layers", "--device"},
    ForeignWord{"-ngl", "--device"},
    ForeignWord{"--gpu", "--device"},
    ForeignWord{"--cuda", "--device"},
    ForeignWord{"--repeat-penalty", "--repetition-penalty"},
    ForeignWord{"--lora", "--adapter"},
    ForeignWord{"--lora", "--lora-rank"},
    ForeignWord{"--adapter-path", "--adapter"},
    ForeignWord{"--system-prompt", "--system"},
    ForeignWord{"-sys", "--system"},
    ForeignWord{"--cache-type-k", "--kv-cache-dtype"},
    ForeignWord{"--cache-type-v", "--kv-cache-dtype"},
    ForeignWord{"--max-kv-size", "--context"},
    ForeignWord{"--block-size", "--context"},
    ForeignWord{"--seq-len", "--context"},
    ForeignWord{"--ctx", "--context"},
    ForeignWord{"--num-ctx", "--context"},
    ForeignWord{"--max-seq-length", "--context"},
    ForeignWord{"--learning-rate", "--lr"},
    ForeignWord{"--batch-size", "--batch"},
    ForeignWord{"--per-device-train-batch-size", "--batch"},
    ForeignWord{"--gradient-accumulation-steps", "--accumulate"},
    ForeignWord{"--grad-accumulation-steps", "--accumulate"},
    ForeignWord{"--grad-accum", "--accumulate"},
    ForeignWord{"--max-iters", "--steps"},
    ForeignWord{"--iters", "--steps"},
    ForeignWord{"--max-steps", "--steps"},
    ForeignWord{"--eval-interval", "--eval-every"},
    ForeignWord{"--steps-per-eval", "--eval-every"},
    ForeignWord{"--eval-iters", "--eval-batches"},
    ForeignWord{"--save-every-steps", "--save-every"},
    ForeignWord{"--save-steps", "--save-every"},
    ForeignWord{"--warmup-iters", "--warmup"},
    ForeignWord{"--warmup-steps", "--warmup"},
    ForeignWord{"--warmup-ratio", "--warmup"},
    ForeignWord{"--grad-clip", "--clip"},
    ForeignWord{"--max-grad-norm", "--clip"},
    ForeignWord{"--n-layer", "--layers"},
    ForeignWord{"--n-head", "--heads"},
    ForeignWord{"--n-embd", "--dim"},
    ForeignWord{"--hidden-size", "--dim"},
    ForeignWord{"--out-dir", "--out"},
    ForeignWord{"--output-dir", "--out"},
    ForeignWord{"--dataset", "--data"},
    ForeignWord{"--train-file", "--data"},
    ForeignWord{"--init-from", "--init"},
    ForeignWord{"--num-threads", "--threads"},
    ForeignWord{"--outtype", "--type"},
    ForeignWord{"--type", "--weights"},
    ForeignWord{"--char", "--tokenizer"},
    ForeignWord{"--n-prompt", "--prompt"},
    ForeignWord{"--repetitions", "--runs"},
    ForeignWord{"--num-train-epochs", "--epochs"},
    ForeignWord{"--val-batches", "--eval-batches"},
    ForeignWord{"--lora-r", "--lora-rank"},
    ForeignWord{"--rank", "--lora-rank"},
    ForeignWord{"--model", "--init"},
    ForeignWord{"-hf", "--init"},
    ForeignWord{"--model-name-or-path", "--init"},
    ForeignWord{"--bf16", "--dtype"},
    ForeignWord{"--fp16", "--dtype"},
    ForeignWord{"--max-length", "--context"},
    ForeignWord{"-ctk", "--kv-cache-dtype"},
    ForeignWord{"-ctv", "--kv-cache-dtype"},
    ForeignWord{"--stop-sequence", "--stop"},
    ForeignWord{"--reverse-prompt", "--stop"},
    ForeignWord{"-np", "--slots"},
    ForeignWord{"--parallel", "--slots"},
    // Commands that have --type do not narrow with --weights, which is known everywhere.
    ForeignWord{"--bits", "--type"},
    ForeignWord{"--q-bits", "--type"},
    ForeignWord{"--quantize", "--type"},
    ForeignWord{"--bits", "--weights"},
    ForeignWord{"--q-bits", "--weights"},
    ForeignWord{"--quantize", "--weights"},
    ForeignWord{"--chat-template", "--template"},
    ForeignWord{"--early-stopping-patience", "--patience"},
    ForeignWord{"--lr-scheduler-type", "--schedule"},
    ForeignWord{"--optim", "--optimizer"},
    ForeignWord{"-r", "--stop"},
    ForeignWord{"-V", "--version"},
    ForeignWord{"-s", "--seed"},
    ForeignWord{"-p", "--prompt"},
    ForeignWord{"-n", "--tokens"},
    ForeignWord{"-r", "--runs"},
    ForeignWord{"-o", "--out"},
    ForeignWord{"-b", "--batch"},
    // Options that Volta lacks.
    ForeignWord{"--no-display-prompt", "--prompts-file", kNewTextAlone},
    ForeignWord{"--repeat-last-n", "--frequency-penalty", kPenalties},
    ForeignWord{"--logit-bias", "--top-k", kSampling},
    ForeignWord{"-l", "--top-k", kSampling},
    ForeignWord{"--mirostat", "--top-k", kSampling},
    ForeignWord{"--mirostat-lr", "--top-k", kSampling},
    ForeignWord{"--mirostat-ent", "--top-k", kSampling},
    ForeignWord{"--typical", "--top-k", kSampling},
    ForeignWord{"--xtc-probability", "--top-k", kSampling},
    ForeignWord{"--dry-multiplier", "--top-k", kSampling},
    ForeignWord{"--grammar", "--top-k", kGrammars},
    ForeignWord{"--grammar-file", "--top-k", kGrammars},
    ForeignWord{"--json-schema", "--top-k", kGrammars},
    ForeignWord{"--color", "--top-k", kColors},
    ForeignWord{"--gradient-checkpointing", "--accumulate", kCheckpointing},
    ForeignWord{"--grad-checkpoint", "--accumulate", kCheckpointing},
    ForeignWord{"--no-packing", "--packing", kPacking},
    ForeignWord{"--dora", "--lora-rank", kDora},
    ForeignWord{"--use-dora", "--lora-rank", kDora},
    ForeignWord{"--qlora", "--lora-rank", kQlora},
    ForeignWord{"--load-in-4bit", "--lora-rank", kQlora},
    ForeignWord{"--lr-decay-iters", "--schedule", kDecayEnd},
    ForeignWord{"--wandb-log", "--tensorboard", kReports},
    ForeignWord{"--report-to", "--tensorboard", kReports},
    ForeignWord{"--push-to-hub", "--tensorboard", kUpload},
    ForeignWord{"-cnv", "--prompts-file", kConversation},
    ForeignWord{"--conversation", "--prompts-file", kConversation},
    ForeignWord{"-i", "--prompts-file", kConversation},
    ForeignWord{"--interactive", "--prompts-file", kConversation},
    ForeignWord{"-cnv", "--messages", kAlreadyChat},
    ForeignWord{"--conversation", "--messages", kAlreadyChat},
    ForeignWord{"-i", "--messages", kAlreadyChat},
    ForeignWord{"--interactive", "--messages", kAlreadyChat},
    ForeignWord{"--typical-p", "--top-k", kSampling},
    ForeignWord{"--num-beams", "--top-k", kBeams},
    ForeignWord{"--draft-model", "--top-k", kDrafts},
    ForeignWord{"--model-draft", "--top-k", kDrafts},
    ForeignWord{"-md", "--top-k", kDrafts},
    ForeignWord{"--prompt-cache", "--top-k", kPromptCache},
    ForeignWord{"--prompt-cache-file", "--top-k", kPromptCache},
    ForeignWord{"--lora-scaled", "--adapter", kAdapterScale},
    // Every command has --device and --weights.
    ForeignWord{"--embedding", "--weights", kEmbeddings},
    ForeignWord{"--embeddings", "--weights", kEmbeddings},
    ForeignWord{"--mmproj", "--weights", kPictures},
    ForeignWord{"--imatrix", "--weights", kCalibration},
    ForeignWord{"-fa", "--device", kAttention},
    ForeignWord{"--flash-attn", "--device", kAttention},
    ForeignWord{"--split-mode", "--device", kSplit},
    ForeignWord{"-sm", "--device", kSplit},
    // Commands that Volta lacks.
    ForeignWord{"serve", "chat", kServers},
    ForeignWord{"server", "chat", kServers},
    ForeignWord{"pull", "chat", kDownloads},
    ForeignWord{"download", "chat", kDownloads},
    // Commands.
    ForeignWord{"run", "chat"},
    ForeignWord{"complete", "generate"},
    ForeignWord{"finetune", "train"},
    ForeignWord{"fine-tune", "train"},
    ForeignWord{"lora", "train"},
    ForeignWord{"fuse", "merge"},
    ForeignWord{"perplexity", "eval"},
    ForeignWord{"ppl", "eval"},
    ForeignWord{"export", "convert"},
    ForeignWord{"info", "inspect"},
    ForeignWord{"show", "inspect"},
    ForeignWord{"benchmark", "bench"},
};

// An option without its value, spelled with hyphens.
std::string spelled_with_hyphens(std::string_view word) {
  std::string spelled(word.substr(0, word.find('=')));
  std::ranges::replace(spelled, '_', '-');
  return spelled;
}

// The number of characters to insert, remove, replace or swap with their neighbour to turn one word
// into the other (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows of the table of distances between beginnings of a and b: the one before the last, the
  // last, and the one that is being filled.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      row[j] = std::min({last[j - 1] + (same ? 0 : 1), last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last.back();
}

std::string_view without_hyphens(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

}  // namespace

std::string suggestion(std::string_view word, std::span<const std::string> known) {
  constexpr std::size_t kLongestWord = 64;
  const std::string spelled = spelled_with_hyphens(word);
  if (spelled.size() > kLongestWord) return "";
  for (const ForeignWord& foreign : kForeignWords) {
    if (foreign.theirs != spelled || !foreign.instead.empty()) continue;
    const auto ours = std::ranges::find(known, foreign.ours);
    if (ours != known.end()) return *ours;
  }
  // One character in four may be wrong, and one in any word of at least three.
  const std::string_view letters = without_hyphens(spelled);
  const std::size_t most = letters.size() < 3 ? 0 : std::max<std::size_t>(1, letters.size() / 4);
  std::size_t nearest = most + 1;
  std::string found;
  for (const std::string& candidate : known) {
    const bool same_kind = candidate.starts_with("-") == spelled.starts_with("-");
    if (!same_kind) continue;
    const std::size_t distance = edit_distance(letters, without_hyphens(candidate));
    if (distance >= nearest) continue;
    nearest = distance;
    found = candidate;
  }
  return found;
}

std::string_view substitute(std::string_view word, std::span<const std::string> known) {
  const std::string spelled = spelled_with_hyphens(word);
  for (const ForeignWord& foreign : kForeignWords) {
    if (foreign.theirs != spelled || foreign.instead.empty()) continue;
    if (std::ranges::find(known, foreign.ours) != known.end()) return foreign.instead;
  }
  return "";
}

}  // namespace volta::cli
