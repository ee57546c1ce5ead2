// Saves a model folder, loads it again and generates for two prompts at once.
#include <volta/volta.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace {

volta::Status run(const std::string& directory) {
  VOLTA_TRY(const volta::DeviceHandle device, volta::open_device());
  // A real program loads a folder that `volta train` wrote; here the weights are random.
  VOLTA_TRY(const auto fresh,
            volta::Transformer::random(volta::tiny_lm_config(), /*seed=*/7, device.shared()));
  VOLTA_TRY(volta::save_model(directory, fresh, volta::make_byte_tokenizer().get()));

  VOLTA_TRY(const auto source, volta::ModelSource::open(directory));
  VOLTA_TRY(auto model, source.load(device.shared(), {.packed = true}));
  VOLTA_TRY(const auto tokenizer, source.tokenizer());
  VOLTA_TRY(auto generator, volta::Generator::create(model, {.slots = 2}));
  std::vector<volta::GenerationRequest> requests(2);
  // encode_prompt() adds what the tokenizer puts before a text (Llama's <s>), encode() does not.
  VOLTA_TRY(requests[0].prompt, tokenizer->encode_prompt("Once upon a time"));
  VOLTA_TRY(requests[1].prompt, tokenizer->encode_prompt("Hello"));
  // The end tokens of generation_config.json or config.json; here there are none.
  VOLTA_TRY(const auto settings, source.generation_config(model.config().vocab_size));
  for (auto& request : requests) {
    request.stop_tokens = settings.end_tokens;
    request.max_new_tokens = 16;
    request.sampling = {.temperature = 0.8f, .top_k = 40, .seed = 42};
  }
  // The callback sees every token as it is drawn; returning false would cancel.
  std::size_t tokens = 0;
  VOLTA_TRY(const auto results, generator.generate(requests, [&](const volta::TokenEvent&) {
    ++tokens;
    return true;
  }));
  const volta::GeneratorMemory memory = generator.memory();
  std::printf("%zu tokens for %zu prompts; weights %lld bytes, KV cache %lld bytes\n", tokens,
              results.size(), static_cast<long long>(memory.weight_bytes),
              static_cast<long long>(memory.cache_bytes));
  return {};
}

}  // namespace

int main() {
  std::string directory = std::filesystem::temp_directory_path() / "volta-example-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) return 1;
  const volta::Status status = run(directory);
  std::filesystem::remove_all(directory);
  if (!status) std::fprintf(stderr, "%s\n", status.error().message().c_str());
  return status ? 0 : 1;
}
