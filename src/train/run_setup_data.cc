#include "train/run_setup_data.h"

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "formats/carried_files.h"
#include "formats/model_source.h"
#include "text/tokenizer.h"
#include "train/dataset.h"
#include "train/run_options.h"

namespace volta::run_setup {
namespace {

// The tokenizer of a model. Null when it has none, or when it is optional (ready-made examples need
// none) and Volta cannot read it.
Result<std::shared_ptr<const Tokenizer>> model_tokenizer(const ModelSource* model, bool optional,
                                                         const Interruption& interrupted,
                                                         const Say& say) {
  if (model == nullptr) return nullptr;
  auto tokenizer = model->tokenizer(interrupted);
  if (tokenizer) return tokenizer;
  if (tokenizer.error().code() == ErrorCode::kNotFound) return nullptr;
  if (!optional || tokenizer.error().code() == ErrorCode::kInterrupted) return tokenizer;
  say(LogLevel::kWarning,
      fmt::format("{}; checkpoints will be without a tokenizer", tokenizer.error().message()));
  return nullptr;
}

// A fresh model has, and trains, one row per id up to the largest one. Common tokenizers leave out
// a few ids at most. A damaged one may have a token with id 1,000,000 beside three others, which
// would take gigabytes.
Status check_gaps(const Tokenizer& tokenizer, const std::string& path) {
  constexpr std::int64_t kMostGaps = 4096;
  const std::int64_t ids = tokenizer.vocab_size();
  std::int64_t tokens = 0;
  for (std::int64_t id = 0; id < ids; ++id) {
    if (!tokenizer.token_bytes(static_cast<std::int32_t>(id)).empty()) ++tokens;
  }
  if (ids - tokens <= tokens + kMostGaps) return {};
  return fail(ErrorCode::kInvalidFile,
              fmt::format("{}: {} tokens have ids up to {}, and a model would have a row for every "
                          "id; number the tokens without such gaps",
                          path, tokens, ids - 1));
}

}  // namespace

Status open_data(RunSetup& setup, const ModelSource* model, const Interruption& interrupted,
                 const Say& say) {
  RunOptions& options = setup.options;
  const bool ready_made = is_example_file(options.data);
  VOLTA_TRY(auto tokenizer, model_tokenizer(model, ready_made, interrupted, say));
  if (model == nullptr) {
    VOLTA_TRY(options.model, complete_sizes(options.model));
  } else {
    VOLTA_TRY(options.model, model->config());
  }
  if (ready_made) {
    if (tokenizer == nullptr && model == nullptr && options.model.vocab_size == 256) {
      tokenizer = make_byte_tokenizer();
    }
    VOLTA_TRY(setup.data, load_examples(options.data, options.model.vocab_size));
    setup.data.tokenizer = std::move(tokenizer);
    return {};
  }
  VOLTA_TRY(setup.data, load_text(options.data, options.tokenizer, std::move(tokenizer),
                                  options.val_fraction, interrupted));
  const std::int64_t vocab = setup.data.tokenizer->vocab_size();
  if (model == nullptr) {
    VOLTA_TRY(check_gaps(*setup.data.tokenizer, options.tokenizer));
    options.model.vocab_size = vocab;
  } else if (vocab > options.model.vocab_size) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: a vocabulary of {} {}s does not fit the model's {} tokens; use "
                    "another tokenizer or another model",
                    options.data, vocab, setup.data.tokenizer->kind(), options.model.vocab_size));
  }
  return {};
}

Status carry_tokenizer_config(RunSetup& setup, const std::string& folder) {
  constexpr std::string_view kName = "tokenizer_config.json";
  const std::string& tokenizer = setup.options.tokenizer;
  if (!tokenizer.ends_with(".json")) return {};
  VOLTA_TRY(auto text, read_carried_file(folder.empty() ? parent_path(tokenizer) : folder, kName));
  if (text) setup.carried.emplace(kName, *std::move(text));
  return {};
}

Status open_batches(RunSetup& setup) {
  RunOptions& options = setup.options;
  const Dataset& data = setup.data;
  std::int64_t& time = options.trainer.time;
  const std::int64_t natural = data.has_examples() ? data.example_length : options.model.context;
  if (time == 0) time = natural;
  if (data.has_examples() && time != natural) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: its examples are {} tokens long, the run asks for {}", data.path,
                            natural, time));
  }
  if (time > options.model.context) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("training: sequences of {} tokens are longer than the model's context "
                            "of {}",
                            time, options.model.context));
  }
  if (options.patience > 0 && data.has_examples()) {
    return fail(ErrorCode::kInvalidArgument,
                "run: patience needs validation text, which ready-made examples lack");
  }
  if (data.has_examples()) {
    VOLTA_TRY(ExampleRows rows, ExampleRows::create(std::move(setup.data.rows), data.examples, time,
                                                    options.trainer.accumulate));
    setup.batches = std::make_unique<ExampleRows>(std::move(rows));
    return {};
  }
  VOLTA_TRY(check_lengths(data, time));
  VOLTA_TRY(RandomWindows windows, RandomWindows::create(data.train, time, options.seed));
  setup.batches = std::make_unique<RandomWindows>(std::move(windows));
  return {};
}

}  // namespace volta::run_setup
