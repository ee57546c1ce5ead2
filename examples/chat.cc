// A conversation with a model: two messages, and answers that are shown as they grow.
#include <volta/volta.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace {

volta::Status run() {
  VOLTA_TRY(const volta::DeviceHandle device, volta::open_device());
  // A real program opens a model with open_model(), by its path or by its name in the hub's cache.
  // The ModelSource then gives the model, the tokenizer and the chat template. This example makes
  // random weights and a short template instead.
  VOLTA_TRY(const auto model,
            volta::Transformer::random(volta::tiny_lm_config(), /*seed=*/7, device.shared()));
  VOLTA_TRY(auto chat_template,
            volta::ChatTemplate::parse("{% for m in messages %}[{{ m.role }}]{{ m.content }}"
                                       "{% endfor %}{{ '[assistant]' if add_generation_prompt }}",
                                       "the example's template"));
  VOLTA_TRY(auto generator, volta::Generator::create(model, {.reuse_prefix = true}));
  volta::Conversation::Settings settings;
  settings.limits.max_new_tokens = 16;
  settings.sampling = {.temperature = 0.8f, .seed = 42};
  settings.context = model.config().context;
  volta::Conversation conversation(std::move(chat_template), volta::make_byte_tokenizer(),
                                   std::move(generator), std::move(settings));
  conversation.begin({volta::make_message("system", "You are brief.")});
  for (const std::string_view text : {"Hello", "And then?"}) {
    // The callback sees the answer as it grows; returning false would stop it.
    std::size_t bytes = 0;
    const auto on_text = [&](std::string_view piece) {
      bytes += piece.size();
      return true;
    };
    VOLTA_TRY(const auto answer, conversation.ask(volta::make_message("user", text), on_text));
    std::printf("%s: %zu bytes; %lld of the prompt's %lld tokens were there already\n",
                std::string(text).c_str(), bytes, static_cast<long long>(answer.reused_tokens),
                static_cast<long long>(answer.prompt_tokens));
  }
  return {};
}

}  // namespace

int main() {
  const volta::Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.error().message().c_str());
  return status ? 0 : 1;
}
