// What the tuner found, kept from one program to the next: one small JSON file for each kind of CPU
// and each version of the kernels, below ~/.volta/matmul_tuning or $VOLTA_CACHE_DIR/matmul_tuning.
// Written whole or not at all, merged under a lock, and never trusted: with a file that is damaged
// or belongs to another CPU or other kernels, products run with the defaults, and a tuner that has
// something to keep sets it aside (renames it to *.bad). The format is in docs/matmul_tuning.md.
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

/// The best that was found for one shape.
struct TuningEntry {
  cpu::Simd simd = cpu::Simd::kSse4;  ///< The kernels that were measured.
  cpu::MatMulShape shape;
  cpu::MatMulParameters parameters;
  double default_gflops = 0;
  double tuned_gflops = 0;
  bool operator==(const TuningEntry&) const = default;
};

/// Whether two products share one choice: of one class of rows and equal otherwise.
bool same_choice(const cpu::MatMulShape& a, const cpu::MatMulShape& b);

/// Files of more entries or bytes than this are refused.
inline constexpr std::int64_t kMostTuningEntries = 4096;
inline constexpr std::int64_t kMostTuningBytes = std::int64_t{4} << 20;

/// The fields of an entry that say which product it is for, and the field "parameters".
void write_shape(JsonWriter& json, const cpu::MatMulShape& s);
void write_parameters(JsonWriter& json, const cpu::MatMulParameters& p);
/// The text of a file for this CPU and these kernels.
std::string tuning_to_json(std::span<const TuningEntry> entries, const CpuSignature& signature);

/// The entries of such a text; `what` names it in messages. Parameters that no kernel takes are
/// left out. kInvalidFile when it is damaged; kUnsupported when it is of another version, another
/// CPU than `signature` or other kernels than this library's.
Result<std::vector<TuningEntry>> parse_tuning(std::string_view text, std::string_view what,
                                              const CpuSignature& signature);

/// The file of one CPU. Safe to use from several threads and processes at once.
class TuningCache {
 public:
  /// Of this CPU, where the environment says. kIo when neither VOLTA_CACHE_DIR nor HOME is set.
  static Result<TuningCache> open();
  /// Of `signature`, in `directory`, which need not exist.
  TuningCache(std::string directory, CpuSignature signature);

  const std::string& directory() const { return directory_; }
  std::string path() const;

  /// All entries; none when there is no file. The errors of parse_tuning and of reading.
  Result<std::vector<TuningEntry>> read() const;
  /// The same for a program that only wants to run: what cannot be read is none, with a warning in
  /// the log. Changes nothing.
  std::vector<TuningEntry> read_or_warn() const;
  /// Adds entries, or replaces those of the same kernels and shape; a file that is not good is set
  /// aside. Waits a few seconds at most for others that write. kIo; kInvalidArgument where there
  /// would be too many.
  Status add(std::span<const TuningEntry> entries) const;
  /// Removes the file; false when there was none. kIo.
  Result<bool> clear() const;

  /// For a program that measures: two at once would measure each other. Finds out before the work
  /// whether add() will keep entries for the kernels and shapes of `expected`, whatever is found
  /// for them: makes the folder and writes all of the new file, under another name. kIo (of another
  /// process, naming it), kInvalidArgument where the file has no room for so many.
  Result<DirectoryLock> lock_for_measuring(std::span<const TuningEntry> expected) const;

 private:
  Result<DirectoryLock> lock() const;
  Result<std::string> text_with(std::span<const TuningEntry> entries) const;
  Status try_add(std::span<const TuningEntry> entries) const;
  std::vector<TuningEntry> set_aside() const;

  std::string directory_;
  CpuSignature signature_;
};

/// The entries of one instruction set as the kernels look them up.
cpu::MatMulTuning to_tuning(std::span<const TuningEntry> entries, cpu::Simd simd);

}  // namespace tuner
}  // namespace volta
