// Any bytes as a GGUF file: its metadata, config, tokenizer and tensors are read without a fault,
// or refused with an Error.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_tokenizer.h"

namespace {

// What is accepted lies inside the file; what is in order can be dequantised.
void read_tensors(const volta::GgufFile& file, std::size_t size) {
  for (const volta::GgufTensor& tensor : file.tensors()) {
    if (tensor.offset < 0 || tensor.bytes <= 0 ||
        tensor.offset + tensor.bytes > static_cast<std::int64_t>(size)) {
      __builtin_trap();
    }
    const volta::GgmlTypeInfo& info = volta::ggml_type_info(tensor.type);
    std::array<float, 256> values{};
    const std::int64_t count = info.block_values;
    file.read_values(tensor, tensor.shape.elements() - count,
                     std::span(values).first(static_cast<std::size_t>(count)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = volta::GgufFile::parse(bytes, "fuzz");
  if (!file) return 0;
  read_tensors(*file, size);
  if (const auto tokenizer = volta::gguf_tokenizer(*file)) {
    const auto ids = (*tokenizer)->encode_prompt("The  model's 123 \u00e9\n<s>");
    if (ids) static_cast<void>((*tokenizer)->decode(*ids));
  }
  const auto config = volta::gguf_config(*file);
  if (!config) return 0;
  const auto found = volta::find_gguf_parameters(*config, *file);
  if (!found) return 0;
  for (const volta::GgufParameter& parameter : *found) {
    const auto tensor = volta::load_gguf_parameter(*file, *config, parameter, volta::DType::kBF16);
    if (tensor && tensor->shape() != parameter.info.shape) __builtin_trap();
  }
  return 0;
}
