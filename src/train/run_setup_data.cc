#include "train/run_setup_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/arithmetic.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "formats/carried_files.h"
#include "formats/model_source.h"
#include "nn/lora.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "train/chat_data.h"
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

namespace {

DataFiles files_of(const RunOptions& options) {
  return {.train = options.data,
          .validation = options.val_data,
          .val_fraction = options.val_fraction,
          .scratch = options.out};
}

Status open_ids(RunSetup& setup, const ModelSource* model,
                std::shared_ptr<const Tokenizer> tokenizer, const Interruption& interrupted) {
  const RunOptions& options = setup.options;
  if (tokenizer == nullptr && model == nullptr && options.model.vocab_size == 256) {
    tokenizer = make_byte_tokenizer();
  }
  const std::int64_t vocab = options.model.vocab_size;
  auto data = data_kind(options.data.front()) == DataKind::kTokenStream
                  ? load_token_stream(files_of(options), vocab, interrupted)
                  : load_examples(files_of(options), vocab, interrupted);
  VOLTA_TRY(setup.data, std::move(data));
  setup.data.tokenizer = std::move(tokenizer);
  return {};
}

// The sequence length that is not given: that of ready-made examples, otherwise the model's
// context. A model that is trained further may have a context of which a batch would not fit into
// memory, so it gets a common length.
std::int64_t natural_time(const RunOptions& options, const Dataset& data) {
  constexpr std::int64_t kCommonLength = 1024;
  if (data.has_examples()) return data.example_length;
  if (options.init.empty()) return options.model.context;
  return std::min(options.model.context, kCommonLength);
}

// A model without a template can learn from prompts and completions that are plain texts.
Status open_chats(RunSetup& setup, const ModelSource& model,
                  std::shared_ptr<const Tokenizer> tokenizer, const Interruption& interrupted) {
  if (tokenizer == nullptr) {
    return fail(ErrorCode::kNotFound,
                fmt::format("{}: no tokenizer, which conversations need", model.path()));
  }
  std::optional<ChatTemplate> chat_template;
  auto found = model.chat_template();
  if (found) {
    chat_template = *std::move(found);
  } else if (found.error().code() != ErrorCode::kNotFound) {
    return std::unexpected(std::move(found).error());
  }
  std::int64_t& time = setup.options.trainer.time;
  if (time == 0) time = natural_time(setup.options, {});
  const ChatRenderer renderer{.chat_template = chat_template ? &*chat_template : nullptr,
                              .tokenizer = tokenizer.get(),
                              .interrupted = interrupted,
                              .row_tokens = time};
  VOLTA_TRY(setup.data, load_chats(files_of(setup.options), renderer, setup.options.seed));
  setup.data.tokenizer = std::move(tokenizer);
  return {};
}

}  // namespace

Status open_data(RunSetup& setup, const ModelSource* model, const Interruption& interrupted,
                 const Say& say) {
  RunOptions& options = setup.options;
  const DataKind kind = data_kind(options.data.front());
  const bool ready_made = kind == DataKind::kTokenIds || kind == DataKind::kTokenStream;
  VOLTA_TRY(auto tokenizer, model_tokenizer(model, ready_made, interrupted, say));
  const bool own_tokenizer = tokenizer != nullptr;
  if (model == nullptr) {
    VOLTA_TRY(options.model, complete_sizes(options.model));
  } else {
    VOLTA_TRY(options.model, model->config());
  }
  if (ready_made) return open_ids(setup, model, std::move(tokenizer), interrupted);
  if (kind == DataKind::kChats && model != nullptr) {
    VOLTA_TRY(open_chats(setup, *model, std::move(tokenizer), interrupted));
  } else {
    VOLTA_TRY(setup.data,
              load_texts(files_of(options), options.tokenizer, std::move(tokenizer), interrupted));
  }
  const std::int64_t vocab = setup.data.tokenizer->vocab_size();
  if (model == nullptr) {
    VOLTA_TRY(check_gaps(*setup.data.tokenizer, options.tokenizer));
    options.model.vocab_size = vocab;
  } else if (own_tokenizer) {
    const auto largest = static_cast<std::int32_t>(vocab - 1);
    VOLTA_TRY(model->check_own_ids({&largest, 1}, options.model.vocab_size));
  } else if (vocab > options.model.vocab_size) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: a vocabulary of {} {}s does not fit the model's {} tokens; use "
                            "another tokenizer or another model",
                            setup.data.path, vocab, setup.data.tokenizer->kind(),
                            options.model.vocab_size));
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

namespace {

// The number of updates that the passes over the rows take.
// A batch that nobody has chosen has no row twice, so that a small set has an update every epoch.
void count_steps(RunOptions& options, std::int64_t rows) {
  if (options.epochs == 0) return;
  if (options.batch_by_memory) {
    TrainerOptions& trainer = options.trainer;
    trainer.accumulate = std::min(trainer.accumulate, ceil_div(rows, trainer.batch));
    trainer.batch = std::min(trainer.batch, rows);
  }
  const std::int64_t used = options.trainer.batch * options.trainer.accumulate;
  options.trainer.schedule.steps = std::max<std::int64_t>(ceil_div(options.epochs * rows, used), 1);
}

Status shuffle_rows(RunSetup& setup, std::shared_ptr<const LabelledRows> rows) {
  const RunOptions& options = setup.options;
  VOLTA_TRY(ShuffledRows source,
            ShuffledRows::create(std::move(rows), options.seed, options.trainer.accumulate));
  setup.batches = std::make_unique<ShuffledRows>(std::move(source));
  return {};
}

// What to do about conversations that do not fit into the rows.
std::string advice_on_length(const PackedChats& packed, const RunOptions& options) {
  if (packed.longest <= options.trainer.time) return "see whether they have answers";
  // A fresh model gets the context that is given; any other has its own.
  const std::int64_t most = options.init.empty() ? packed.longest : options.model.context;
  if (most <= options.trainer.time) {
    return "the model's context is no longer, so divide these conversations";
  }
  if (most < packed.longest) {
    return fmt::format("try --context {}, the model's own, and divide what is longer", most);
  }
  return fmt::format("try --context {}, into which the longest one fits", packed.longest);
}

// Reports what does not fit into the rows. `of` begins each line: whose conversations these are.
void report_lengths(const PackedChats& packed, std::string_view of, const RunOptions& options,
                    const Say& say) {
  const std::string most = counted(options.trainer.time, "token");
  const std::string advice = advice_on_length(packed, options);
  if (packed.cut > 0) {
    say(LogLevel::kWarning,
        fmt::format("{}{} of {} {} longer than {}: ends of answers are cut off; {}", of, packed.cut,
                    counted(packed.conversations + packed.left_out, "conversation"),
                    packed.cut == 1 ? "is" : "are", most, advice));
  }
  if (packed.left_out > 0) {
    say(LogLevel::kWarning,
        fmt::format("{}{} left out: no answer begins within {}; {}", of,
                    packed.left_out == 1 ? "1 conversation is"
                                         : fmt::format("{} conversations are", packed.left_out),
                    most, advice));
  }
}

// Says so when rows are mostly padding, which takes as much time as tokens do.
void report_padding(const PackedChats& packed, const RunOptions& options, const Say& say) {
  const std::int64_t places = packed.rows.count * packed.rows.time;
  if (options.packing || packed.rows.count < 64 || packed.tokens * 4 > places) return;
  say(LogLevel::kInfo,
      fmt::format("conversations fill {}% of their rows; --packing puts several into a row, which "
                  "takes less time, but each one then sees those before it",
                  packed.tokens * 100 / places));
}

// Divides the batch until an update fits into three quarters of the memory; the rest is for
// evaluation and for what else runs. An update still takes as many sequences.
Status fit_batch(RunOptions& options, std::int64_t row_tokens, Device& device, const Say& say) {
  const std::int64_t memory = device.info().memory_bytes;
  if (memory <= 0) return {};
  LoraConfig lora = options.lora;
  if (lora.active()) {
    VOLTA_TRY(lora, complete_lora(lora, options.model));
  }
  const std::int64_t sequences = options.trainer.batch * options.trainer.accumulate;
  const auto bytes_of = [&](std::int64_t batch) -> Result<std::int64_t> {
    TrainerOptions trainer = options.trainer;
    trainer.time = row_tokens;
    trainer.batch = batch;
    trainer.accumulate = sequences / batch;
    VOLTA_TRY(const TrainerMemory needed, Trainer::estimate(options.model, lora, trainer, device));
    return needed.weights + needed.optimizer + needed.activations;
  };
  std::int64_t batch = options.trainer.batch;
  VOLTA_TRY(std::int64_t bytes, bytes_of(batch));
  while (batch > 1 && bytes > memory / 4 * 3) {
    do --batch;
    while (options.trainer.batch % batch != 0);
    VOLTA_TRY(bytes, bytes_of(batch));
  }
  if (batch != options.trainer.batch) {
    say(LogLevel::kInfo,
        fmt::format("batch: {} micro-batches of {} instead of {} of {}, to fit into the memory of "
                    "{} ({}); --batch chooses another size",
                    sequences / batch, batch, options.trainer.accumulate, options.trainer.batch,
                    device.info().id, format_bytes(memory)));
  }
  if (bytes > memory) {
    say(LogLevel::kWarning,
        fmt::format("training takes {} even with one sequence at a time, and {} has {}: choose a "
                    "shorter --context, or train an adapter (--lora-rank)",
                    format_bytes(bytes), device.info().id, format_bytes(memory)));
  }
  options.trainer.batch = batch;
  options.trainer.accumulate = sequences / batch;
  return {};
}

Status open_chat_batches(RunSetup& setup, Device& device, const Say& say) {
  RunOptions& options = setup.options;
  const std::int64_t most = options.trainer.time;
  const std::int64_t time = options.packing
                                ? most
                                : std::max(row_length(setup.data.chats, most),
                                           row_length(setup.data.validation_chats, most));
  PackedChats packed = pack_chats(setup.data.chats, time, options.packing, options.seed);
  report_lengths(packed, "", options, say);
  if (packed.rows.count == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: no conversation has an answer within {} tokens; {}",
                            setup.data.path, most, advice_on_length(packed, options)));
  }
  PackedChats validation =
      pack_chats(setup.data.validation_chats, time, options.packing, options.seed);
  if (!options.val_data.empty() && validation.rows.count == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: no conversation has an answer within {} tokens; {}",
                            options.val_data, most, advice_on_length(validation, options)));
  }
  report_lengths(validation, "to validate with: ", options, say);
  say(LogLevel::kInfo,
      fmt::format("conversations: {} to train on, with {} of answers in {} of {}; {} to validate "
                  "with",
                  packed.conversations, counted(packed.targets, "token"),
                  counted(packed.rows.count, "row"), time, validation.conversations));
  if (validation.rows.count > 0) {
    setup.data.validation_rows = std::make_shared<const LabelledRows>(std::move(validation.rows));
  }
  setup.data.validation_chats.clear();
  report_padding(packed, options, say);
  setup.row_tokens = time;
  options.trainer.masked = true;
  if (options.batch_by_memory) VOLTA_TRY(fit_batch(options, time, device, say));
  count_steps(options, packed.rows.count);
  return shuffle_rows(setup, std::make_shared<const LabelledRows>(std::move(packed.rows)));
}

Status open_id_batches(RunSetup& setup) {
  RunOptions& options = setup.options;
  Dataset& data = setup.data;
  const std::int64_t time = options.trainer.time;
  count_steps(options, data.examples);
  if (options.shuffle) return shuffle_rows(setup, label_rows(data.rows, data.examples, time));
  VOLTA_TRY(ExampleRows rows, ExampleRows::create(std::move(data.rows), data.examples, time,
                                                  options.trainer.accumulate));
  setup.batches = std::make_unique<ExampleRows>(std::move(rows));
  return {};
}

}  // namespace

Status open_batches(RunSetup& setup, Device& device, const Say& say) {
  RunOptions& options = setup.options;
  const Dataset& data = setup.data;
  std::int64_t& time = options.trainer.time;
  const std::int64_t natural = natural_time(options, data);
  if (time == 0) time = natural;
  if (data.has_examples() && time != natural) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: its examples are {} tokens long, the run asks for {}", data.path,
                            natural, time));
  }
  if (time > options.model.context) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("sequences of {} tokens to train on are longer than the model's "
                            "context of {} (--context)",
                            time, options.model.context));
  }
  if (options.patience > 0 && data.has_examples() && data.validation_rows == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "--patience needs data to validate with; name a file of token ids (--val-data)");
  }
  if (data.has_chats()) return open_chat_batches(setup, device, say);
  setup.row_tokens = time;
  if (options.batch_by_memory) VOLTA_TRY(fit_batch(options, time, device, say));
  if (data.has_examples()) return open_id_batches(setup);
  VOLTA_TRY(check_lengths(data, time));
  auto opened = data.mapped
                    ? RandomWindows::create(data.mapped, data.mapped_train, time, options.seed)
                    : RandomWindows::create(data.train, time, options.seed);
  VOLTA_TRY(RandomWindows windows, std::move(opened));
  setup.batches = std::make_unique<RandomWindows>(std::move(windows));
  return {};
}

}  // namespace volta::run_setup
