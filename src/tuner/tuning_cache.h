// Stores what the tuner found between programs, in one small JSON file for each kind of CPU and
// each version of the kernels, below ~/.volta/matmul_tuning or $VOLTA_CACHE_DIR/matmul_tuning. The
// file is written whole or not at all, merged under a lock, and never trusted. If it is damaged or
// belongs to another CPU or other kernels, products run with the defaults. A tuner that has
// something to store then sets it aside (renames it to *.bad). The format is in
// docs/matmul_tuning.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/result.h"
#include "kernels/cpu/matmul_parameters.h"
#include "tuner/cpu_signature.h"

namespace [[gnu::visibility("default")]] volta {
namespace tuner {

/// The best parameters that were found for one shape.
struct TuningEntry {
  cpu::Simd simd = cpu::Simd::kSse4;  ///< The kernels that were measured.
  cpu::MatMulShape shape;
  cpu::MatMulParameters parameters;
  double default_gflops = 0;
  double tuned_gflops = 0;
  bool operator==(const TuningEntry&) const = default;
};

/// Whether two products share one choice: their rows are of one class, and all else is equal.
bool same_choice(const cpu::MatMulShape& a, const cpu::MatMulShape& b);

/// Files with more entries or bytes than this are an error.
inline constexpr std::int64_t kMostTuningEntries = 4096;
inline constexpr std::int64_t kMostTuningBytes = std::int64_t{4} << 20;

/// Write the fields of an entry that identify its product, and the field "parameters".
void write_shape(JsonWriter& json, const cpu::MatMulShape& s);
void write_parameters(JsonWriter& json, const cpu::MatMulParameters& p);
/// The text of a file for this CPU and these kernels.
std::string tuning_to_json(std::span<const TuningEntry> entries, const CpuSignature& signature);

/// The entries of such a text; `what` names it in messages. Parameters that no kernel supports are
/// left out. kInvalidFile if the text is damaged; kUnsupported if it has another version, or is for
/// another CPU than `signature` or other kernels than this library's.
Result<std::vector<TuningEntry>> parse_tuning(std::string_view text, std::string_view what,
                                              const CpuSignature& signature);

/// The file of one CPU. Safe to use from several threads and processes at once.
class TuningCache {
 public:
  /// The file of this CPU, in the folder that the environment selects. kIo if neither
  /// VOLTA_CACHE_DIR nor HOME is set.
  static Result<TuningCache> open();
  /// The file of `signature`, in `directory`, which need not exist.
  TuningCache(std::string directory, CpuSignature signature);

  const std::string& directory() const { return directory_; }
  std::string path() const;

  /// All entries; none if there is no file. Fails as parse_tuning() does, or if reading fails.
  Result<std::vector<TuningEntry>> read() const;
  /// Like read(), for a program that only wants to run: a file that cannot be used counts as empty,
  /// and the log gets a warning. Changes nothing.
  std::vector<TuningEntry> read_or_warn() const;
  /// Adds entries, or replaces those of the same kernels and shape. A bad file is set aside. Waits
  /// at most a few seconds for other writers. kIo; kInvalidArgument if there would be too many
  /// entries.
  Status add(std::span<const TuningEntry> entries) const;
  /// Removes the file, or a link in its place; returns false if there was none. kInvalidFile if
  /// something else has its name, such as a folder, which stays; kIo, also when it cannot be known
  /// whether there is one.
  Result<bool> clear() const;

  /// For a program that measures, because two at once would disturb each other. Checks before the
  /// work whether add() will be able to store entries for the kernels and shapes of `expected`:
  /// makes the folder, and writes all of the new file under another name. kIo (if another process
  /// measures, naming it); kInvalidArgument if the file has no room for so many entries.
  Result<DirectoryLock> lock_for_measuring(std::span<const TuningEntry> expected) const;

 private:
  Result<DirectoryLock> lock() const;
  Result<std::string> text_with(std::span<const TuningEntry> entries) const;
  Status try_add(std::span<const TuningEntry> entries) const;
  std::vector<TuningEntry> set_aside() const;

  std::string directory_;
  CpuSignature signature_;
};

/// The entries of one instruction set, in the form in which the kernels look them up.
cpu::MatMulTuning to_tuning(std::span<const TuningEntry> entries, cpu::Simd simd);

}  // namespace tuner
}  // namespace volta
