// Reads the CPU's identity from CPUID and its caches from /sys.
#include "tuner/cpu_signature.h"

#include <cpuid.h>
#include <fmt/format.h>

#include <array>

#include "base/cpu.h"

namespace volta::tuner {
namespace {

// Appends the four letters in a register, the lowest byte first.
void append_letters(std::string& text, std::uint32_t word) {
  for (int i = 0; i < 4; ++i) text += static_cast<char>((word >> (8 * i)) & 0xFFu);
}

CpuSignature read_signature() {
  CpuSignature signature;
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0) {
    for (const std::uint32_t word : {ebx, edx, ecx}) append_letters(signature.vendor, word);
  }
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) {
    const CpuVersion version = decode_cpu_version(eax);
    signature.family = version.family;
    signature.model = version.model;
    signature.stepping = version.stepping;
  }
  // CPUID reports the caches of the core that runs it, which differ between the cores of some CPUs.
  // The system reports those of its first core, whichever core runs this.
  const CpuInfo info = cpu_info();
  signature.caches = {info.l1d_bytes, info.l2_bytes, info.l3_bytes};
  signature.isa = cpu::simd_name(cpu::best_simd());
  return signature;
}

std::string file_name_letters(const std::string& text) {
  std::string letters;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z') letters += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) letters += c;
  }
  return letters.empty() ? "unknown" : letters;
}

}  // namespace

CpuVersion decode_cpu_version(std::uint32_t eax) {
  const auto bits = [eax](int from, int count) {
    return static_cast<int>((eax >> from) & ((1u << count) - 1));
  };
  const int base_family = bits(8, 4);
  const bool extended = base_family == 6 || base_family == 15;
  return {.family = base_family + (base_family == 15 ? bits(20, 8) : 0),
          .model = bits(4, 4) + (extended ? bits(16, 4) * 16 : 0),
          .stepping = bits(0, 4)};
}

CpuSignature cpu_signature() {
  static const CpuSignature signature = read_signature();
  return signature;
}

std::string to_string(const CpuSignature& s) {
  return fmt::format("{}-{}-{}-{}-{}k-{}k-{}k-{}", file_name_letters(s.vendor), s.family, s.model,
                     s.stepping, s.caches.l1d >> 10, s.caches.l2 >> 10, s.caches.l3 >> 10,
                     file_name_letters(s.isa));
}

}  // namespace volta::tuner
