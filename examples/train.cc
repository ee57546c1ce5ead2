// Trains a tiny language model on a sentence and lets it go on writing.
#include <volta/volta.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

volta::Status run() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog. ";
  VOLTA_TRY(const auto tokenizer, volta::make_char_tokenizer(text));
  VOLTA_TRY(auto ids, tokenizer->encode(text));

  VOLTA_TRY(const volta::DeviceHandle device, volta::open_device());
  volta::TransformerConfig config;
  config.vocab_size = tokenizer->vocab_size();
  config.context = 64;
  config.layers = 2;
  config.dim = 64;
  config.ffn = 256;
  config.heads = config.kv_heads = 4;
  config.head_dim = 16;
  VOLTA_TRY(const auto model, volta::Transformer::random(config, /*seed=*/1, device.shared()));

  volta::TrainerOptions options;
  options.batch = 8;
  options.time = config.context;
  options.schedule = {.lr = 3e-3, .min_lr = 3e-4, .warmup = 10, .steps = 100};
  VOLTA_TRY(auto trainer, volta::Trainer::create(model, options));
  const auto tokens = std::make_shared<const std::vector<std::int32_t>>(std::move(ids));
  VOLTA_TRY(const auto batches, volta::RandomWindows::create(tokens, options.time, /*seed=*/1));
  for (int step = 0; step < 100; ++step) {
    VOLTA_TRY(const volta::StepReport report, trainer.step(batches));
    if (step % 25 == 0 || step == 99) std::printf("step %3d  loss %.3f\n", step, report.loss);
  }

  VOLTA_TRY(auto generator, volta::Generator::create(model, {}));
  volta::GenerationRequest request;
  VOLTA_TRY(request.prompt, tokenizer->encode("the quick"));
  request.max_new_tokens = 40;
  request.sampling.temperature = 0.0f;
  VOLTA_TRY(const auto results, generator.generate({&request, 1}));
  std::printf("the quick%s\n", tokenizer->decode(results[0].tokens).c_str());
  return {};
}

}  // namespace

int main() {
  const volta::Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.error().message().c_str());
  return status ? 0 : 1;
}
