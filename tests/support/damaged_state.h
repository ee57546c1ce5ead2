// Checkpoints whose files have the sizes and checksums of the manifest, with a trainer's state that
// no trainer writes.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/file.h"
#include "base/hash.h"
#include "formats/safetensors.h"
#include "train/checkpoint_manifest.h"

namespace volta::test {

/// Writes into the manifest of a checkpoint what its file `name` now holds.
inline void bless(const std::string& folder, const std::string& name) {
  auto manifest = read_manifest(folder);
  const auto bytes = read_text_file(join_path(folder, name));
  ASSERT_TRUE(manifest && bytes);
  for (CheckpointFile& entry : manifest->files) {
    if (entry.name != name) continue;
    entry.bytes = std::ssize(*bytes);
    entry.xxh3 = hex(hash64(*bytes));
  }
  ASSERT_TRUE(write_file_atomic(join_path(folder, kManifestFile), to_json(*manifest)));
}

/// The content of trainer.safetensors.
struct StoredState {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Lets `change` edit the StoredState of a checkpoint.
template <typename Change>
void change_state(const std::string& folder, Change change) {
  const std::string path = join_path(folder, kTrainerFile);
  StoredState state;
  {
    const auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file);
    state = {*file->load_all(), file->metadata()};
  }
  change(state);
  ASSERT_TRUE(write_safetensors(path, state.tensors, state.metadata));
  bless(folder, std::string(kTrainerFile));
}

}  // namespace volta::test
