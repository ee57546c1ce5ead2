// The libraries that multiply, each in a file of its own: volta.cc, blas.cc, onednn.cc,
// libxsmm.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "problem.h"

namespace [[gnu::visibility("default")]] peers {

class Library {
 public:
  virtual ~Library() = default;
  /// Name, version and how it runs here, for people.
  virtual std::string describe() const = 0;
  /// Whether it has products of this type at all.
  virtual bool multiplies(Type type) const { return type == Type::kF32; }
  /// Adds the ways in which it multiplies this problem, its best one first; none when it cannot.
  /// The problem must outlive them.
  virtual void add_contenders(Problem& problem, std::vector<Contender>& contenders) = 0;
};

struct LibraryOptions {
  int threads = 1;
};
/// Null where Volta cannot run as asked; `error` says why.
std::unique_ptr<Library> make_volta(const LibraryOptions& options, std::string& error);
/// Each is null where the library is missing.
std::unique_ptr<Library> make_openblas(const LibraryOptions& options);
std::unique_ptr<Library> make_blis(const LibraryOptions& options);
std::unique_ptr<Library> make_libxsmm(const LibraryOptions& options);
/// The versions of oneDNN that there are, the oldest first.
std::vector<std::unique_ptr<Library>> make_onednns(const LibraryOptions& options);

}  // namespace peers
