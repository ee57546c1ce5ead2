// Texts of shapes and specs, and the checks for untrusted sizes.
#include "tensor/spec.h"

#include <fmt/format.h>

#include <algorithm>

namespace volta {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::string to_string(const TensorSpec& spec) {
  std::string text = std::string(dtype_name(spec.dtype)) + to_string(spec.shape);
  if (spec.encoding.plain()) return text;
  if (spec.encoding.quantized()) {
    text +=
        fmt::format(" as {} by {}", format_info(spec.encoding.quant).elements, spec.encoding.block);
    if (spec.encoding.packing == Packing::kRows) return text;
  }
  text += fmt::format(" in {}panels of {}", spec.encoding.transposed ? "transposed " : "",
                      spec.encoding.width);
  return spec.encoding.group == 1 ? text : text + fmt::format(" by {}", spec.encoding.group);
}

Result<Shape> make_shape(std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<std::size_t>(kMaxRank)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a tensor has at most {} dimensions, not {}", kMaxRank, dims.size()));
  }
  Shape shape;
  for (const std::int64_t dim : dims) shape.push_back(dim);
  for (const std::int64_t dim : dims) {
    if (dim < 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("shape {} has a negative dimension", to_string(shape)));
    }
  }
  return shape;
}

namespace {

// Checks the spec of a quantised matrix.
Status check_quantized(const TensorSpec& spec) {
  const Encoding& encoding = spec.encoding;
  const bool block = format_has_block(encoding.quant, encoding.block);
  const bool group = encoding.packing == Packing::kRows || encoding.group == 4;
  const std::int64_t width = encoding.packing == Packing::kPanels ? 1024 : 1;
  if (spec.dtype == DType::kF32 && spec.shape.rank() == 2 && block && group) {
    // The last block and the last panel are padded.
    const double columns = static_cast<double>(encoding.n(spec.shape) + width);
    const double bytes = columns * static_cast<double>(encoding.blocks(encoding.k(spec.shape))) *
                         static_cast<double>(encoding.block_bytes());
    if (bytes <= static_cast<double>(kMaxTensorBytes)) return {};
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is larger than the largest tensor, {} bytes", to_string(spec),
                            kMaxTensorBytes));
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: what is quantised is an f32 matrix, in blocks of a multiple of 32 up "
                  "to {} ({} in all formats of GGUF's with two levels of scales), by groups of 4",
                  to_string(spec), kMaxBlock, kMaxBlock));
}

}  // namespace

Status check_spec(const TensorSpec& spec) {
  // An empty dimension counts as one, so that no product of some of the dimensions (rows(),
  // product()) can overflow either.
  std::int64_t bytes = std::max<std::int64_t>(dtype_size(spec.dtype), 1);
  for (int i = 0; i < spec.shape.rank(); ++i) {
    const std::int64_t dim = spec.shape[i];
    if (dim < 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} has a negative dimension", to_string(spec)));
    }
    if (dim > kMaxTensorBytes / bytes) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is larger than the largest tensor, {} bytes", to_string(spec),
                              kMaxTensorBytes));
    }
    bytes *= std::max<std::int64_t>(dim, 1);
  }
  if (spec.encoding.plain()) return {};
  if (spec.encoding.quantized()) VOLTA_TRY(check_quantized(spec));
  if (spec.encoding.packing == Packing::kRows) return {};
  constexpr std::int64_t kMaxWidth = 1024;
  constexpr std::int64_t kMaxGroup = 8;
  const Encoding& encoding = spec.encoding;
  if (spec.shape.rank() != 2 || encoding.width < 1 || encoding.width > kMaxWidth ||
      encoding.group < 1 || encoding.group > kMaxGroup) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: only a matrix has panels, of 1 to {} columns, by 1 to {} rows",
                            to_string(spec), kMaxWidth, kMaxGroup));
  }
  // The padding is less than one panel, plus less than one group per column.
  const std::int64_t more =
      (encoding.k(spec.shape) + kMaxGroup) * kMaxWidth + encoding.n(spec.shape) * kMaxGroup;
  if (bytes + more * dtype_size(spec.dtype) <= kMaxTensorBytes) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is larger than the largest tensor, {} bytes", to_string(spec),
                          kMaxTensorBytes));
}

}  // namespace volta
