// The only file that is compiled again when just the hash changes.
#include "tuner/kernels_hash.h"

#ifndef VOLTA_KERNELS_HASH
#error "VOLTA_KERNELS_HASH comes from cmake/VoltaModuleFlags.cmake"
#endif

namespace volta::tuner {

std::string_view kernels_hash() { return VOLTA_KERNELS_HASH; }

}  // namespace volta::tuner
