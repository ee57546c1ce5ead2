// volta convert: a GGUF file to a Hugging Face folder, and back.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/text.h"
#include "command.h"
#include "formats/gguf/gguf_convert.h"
#include "formats/gguf/gguf_file.h"
#include "formats/gguf/gguf_name.h"
#include "formats/model_source.h"
#include "progress.h"
#include "train/open_model.h"

namespace volta::cli {
namespace {

struct ConvertOptions {
  std::string in;
  std::string out;
  std::optional<std::string> type;
};

// Shows which tensor is converted. Returns false when the user interrupts.
class Counter {
 public:
  bool operator()(std::size_t done, std::size_t all) {
    progress_.show([&] { return fmt::format("tensor {} of {}", done + 1, all); });
    return !interrupted();
  }
  void finish() { progress_.erase(); }

 private:
  Progress progress_;
};

// Nothing for "stored": each matrix keeps the type that it has in the folder.
Result<std::optional<GgmlType>> gguf_type(const std::string& name) {
  if (name == "stored") return std::nullopt;
  const auto info = find_ggml_type(name);
  if (info && can_quantize(info->type)) return std::optional(info->type);
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--type {}: use stored, f32, f16, bf16, q8_0, q4_0 or q4_1", name));
}

Status to_folder(const Globals& globals, const ConvertOptions& options, Counter& counter) {
  if (options.type) {
    return fail(ErrorCode::kInvalidArgument,
                "--type is for GGUF files; use --dtype for the weights of a folder");
  }
  VOLTA_TRY(const DType dtype, float_type(globals.dtype, "--dtype"));
  VOLTA_TRY(check_output_folder(globals, options.out, options.in));
  VOLTA_TRY(const ModelSource source, open_model(options.in, interrupted));
  return gguf_to_folder(source, options.out, dtype, globals.force, counter);
}

Status to_gguf(const Globals& globals, const ConvertOptions& options, Counter& counter) {
  if (globals.has("--dtype")) {
    return fail(ErrorCode::kInvalidArgument,
                "--dtype is for the weights of a folder; use --type for a GGUF file's");
  }
  VOLTA_TRY(const auto type, gguf_type(options.type.value_or("f32")));
  VOLTA_TRY(const ModelSource source, open_model(options.in, interrupted));
  VOLTA_TRY(const bool complete, folder_to_gguf(source, options.out, type, globals.force, counter));
  if (!complete) {
    note("the tokenizer is stored as tokenizer.json only: other programs may not read it\n");
  }
  return {};
}

// The size of a .gguf file, or of all files of weights in a folder.
Result<std::int64_t> weight_file_bytes(const std::string& path, bool folder) {
  if (!folder) return file_size(path);
  std::int64_t bytes = 0;
  VOLTA_TRY(const auto names, list_directory(path));
  for (const std::string& name : names) {
    if (!name.ends_with(".safetensors")) continue;
    VOLTA_TRY(const std::int64_t size, file_size(join_path(path, name)));
    bytes += size;
  }
  return bytes;
}

Status convert(const Globals& globals, const ConvertOptions& options) {
  VOLTA_TRY(parse_output(globals, {Output::kText}));
  VOLTA_TRY(refuse_unused(globals, "--profile"));
  VOLTA_TRY(refuse_unused(globals, "--weights"));
  const bool from = is_gguf_path(options.in), to = has_gguf_name(options.out);
  if (from == to) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' to '{}': one of them must be a .gguf file, the other a folder",
                            options.in, options.out));
  }
  Counter counter;
  const Status done =
      from ? to_folder(globals, options, counter) : to_gguf(globals, options, counter);
  counter.finish();
  VOLTA_TRY(done);
  VOLTA_TRY(const std::int64_t bytes, weight_file_bytes(options.out, from));
  return print(fmt::format("model: {}, {} as {}\n", options.out, format_bytes(bytes),
                           from ? globals.dtype : options.type.value_or("f32")));
}

}  // namespace

void add_convert(Command& app, Globals& globals, Action& action) {
  Command* command = app.add_subcommand("convert", "between GGUF files and model folders");
  auto options = std::make_shared<ConvertOptions>();
  command->add_option("in", options->in, kModelHelp)->required()->not_a_stream();
  command->add_option("out", options->out, "a folder, or a .gguf file")->required()->not_a_stream();
  command->add_option("--type", options->type,
                      "of a GGUF file's matrices: stored (as in the folder), f32, f16, bf16, "
                      "q8_0, q4_0 or q4_1 (default f32)");
  command->add_flag("--force", globals.force,
                    "replace the model or file that is there; other files of a folder stay");
  command->footer("--dtype f32, bf16 or f16 is the type of a folder's weights.");
  command->callback([&globals, &action, options] {
    action = [&globals, options] { return convert(globals, *options); };
  });
}

}  // namespace volta::cli
