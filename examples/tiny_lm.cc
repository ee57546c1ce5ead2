// The smallest way to make tokens: a TinyLm with random weights, one step at a time.
#include <volta/volta.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

volta::Status run() {
  VOLTA_TRY(const volta::DeviceHandle device, volta::open_device());
  VOLTA_TRY(const auto model,
            volta::TinyLm::random(volta::tiny_lm_config(), /*seed=*/7, device.shared()));
  const auto tokenizer = volta::make_byte_tokenizer();
  VOLTA_TRY(const auto prompt, tokenizer->encode("Once upon a time"));
  VOLTA_TRY(auto decoder, volta::Decoder::create(model, {}));
  volta::DrawnToken next;
  for (const std::int32_t token : prompt) {
    VOLTA_TRY(next, volta::forward_step(decoder, /*slot=*/0, token));
  }
  std::vector<std::int32_t> answer;
  while (answer.size() < 16) {
    answer.push_back(next.token);
    VOLTA_TRY(next, volta::forward_step(decoder, /*slot=*/0, next.token));
  }
  const std::string text = tokenizer->decode(answer);
  std::printf("%zu tokens after a prompt of %zu: %zu bytes\n", answer.size(), prompt.size(),
              text.size());
  return {};
}

}  // namespace

int main() {
  const volta::Status status = run();
  if (!status) std::fprintf(stderr, "%s\n", status.error().message().c_str());
  return status ? 0 : 1;
}
