// The versions of oneDNN, each in a module beside the program with a name space of its own.
#include <dlfcn.h>

#include <cstdio>

#include "libraries.h"

namespace peers {

std::vector<std::unique_ptr<Library>> make_onednns(const LibraryOptions& options) {
  using Make = Library* (*)(const LibraryOptions&);
  std::vector<std::unique_ptr<Library>> versions;
  for (const char* name : {"debian", "pypi"}) {
    const std::string file = std::string("$ORIGIN/libpeers_onednn_") + name + ".so";
    void* const module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (module == nullptr) {
      std::fprintf(stderr, "no oneDNN of %s: %s\n", name, dlerror());
      continue;
    }
    const auto make = reinterpret_cast<Make>(dlsym(module, "peers_make_onednn"));
    if (make != nullptr) versions.emplace_back(make(options));
  }
  return versions;
}

}  // namespace peers
