// manifest.json: read back as it was written, and refused where a stranger changed it.
#include "train/checkpoint_manifest.h"

#include <gtest/gtest.h>

#include <string>

#include "train/helpers.h"

namespace volta {
namespace {

using test::expect_error;

TEST(Manifest, IsReadBack) {
  CheckpointManifest manifest;
  manifest.volta = "1.2.3+abc";
  manifest.step = 5;
  manifest.device = "cpu";
  manifest.isa = "avx2";
  manifest.kernels = {"MatMul a", "MatMul b"};
  for (const char* name : {"config.json", "model.safetensors", "trainer.safetensors"}) {
    manifest.files.push_back({name, 7, "0123456789abcdef"});
  }
  const std::string json = to_json(manifest);
  VOLTA_ASSERT_OK(const CheckpointManifest back, parse_manifest(json, "m"));
  EXPECT_EQ(to_json(back), json);

  const auto expect_refused = [&](const std::string& from, const std::string& to,
                                  const std::string& text) {
    std::string bad = json;
    ASSERT_NE(bad.find(from), std::string::npos);
    bad.replace(bad.find(from), from.size(), to);
    expect_error(parse_manifest(bad, "m"), ErrorCode::kInvalidFile, text);
  };
  expect_refused("config.json", "../etc/passwd", "no file of a checkpoint");
  expect_refused("config.json", "..", "no file of a checkpoint");
  expect_refused("config.json", "", "no file of a checkpoint");
  expect_refused("config.json", "model.safetensors", "listed twice");
  expect_refused("config.json", "other.json", "no 'config.json' listed");
  expect_refused("0123456789abcdef", "0123456789ABCDEF", "no file of a checkpoint");
  expect_refused("0123456789abcdef", "0123", "no file of a checkpoint");
  expect_refused("\"bytes\": 7", "\"bytes\": -7", "bytes");
  expect_refused("\"step\": 5", "\"step\": -5", "step");
  expect_refused("\"step\": 5", "\"step\": 5e99", "step");
  expect_refused("\"isa\"", "\"is\"", "isa");
  expect_refused("\"MatMul a\"", "17", "kernels[0]");
  expect_refused("\"format\": 1", "\"format\": \"1\"", "format");
  expect_error(parse_manifest(std::string(2 << 20, ' '), "m"), ErrorCode::kInvalidFile, "m");
}

}  // namespace
}  // namespace volta
