// How fast a text is encoded and decoded, one thread: bench_tokenizer, or for the comparison with
// others (bench/peers/tokenizer.py) bench_tokenizer --chunks TOKENIZER TEXT, which prints the
// seconds of one pass over the text in chunks of lines, and a checksum of the ids.
#include "text/tokenizer.h"

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "text/tokenizers/bpe_trainer.h"
#include "text/tokenizers/split_scanner.h"

namespace {

constexpr std::size_t kChunk = 4096;  // Bytes, to the end of the line: as in tokenizer.py.

std::vector<std::string_view> chunks_of(std::string_view text) {
  std::vector<std::string_view> chunks;
  while (!text.empty()) {
    const std::size_t line = text.find('\n', std::min(kChunk, text.size()));
    const std::size_t end = line == std::string_view::npos ? text.size() : line + 1;
    chunks.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return chunks;
}

// Words of several lengths and scripts, much repeated, as in real text.
std::string sample_text() {
  std::string text;
  unsigned state = 1;
  while (text.size() < 1 << 20) {
    state = state * 1664525 + 1013904223;
    const unsigned word = (state >> 8) % ((state >> 28) + 1) * 97 % 4001;
    for (unsigned rest = word + 7; rest > 0; rest /= 13) text += static_cast<char>('a' + rest % 13);
    text += (state >> 20) % 12 == 0 ? ".\n" : " ";
  }
  return text;
}

void encode(benchmark::State& state) {
  const std::string text = sample_text();
  const auto json = volta::tokenizers::train_byte_level_bpe(text, {.vocab_size = 2000});
  const auto tokenizer = volta::parse_tokenizer(*json, "bench");
  const auto chunks = chunks_of(text);
  for (auto _ : state) {
    for (const std::string_view chunk : chunks)
      benchmark::DoNotOptimize((*tokenizer)->encode(chunk));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(encode)->Unit(benchmark::kMillisecond);

void decode(benchmark::State& state) {
  const std::string text = sample_text();
  const auto json = volta::tokenizers::train_byte_level_bpe(text, {.vocab_size = 2000});
  const auto tokenizer = volta::parse_tokenizer(*json, "bench");
  const auto ids = (*tokenizer)->encode(text);
  for (auto _ : state) benchmark::DoNotOptimize((*tokenizer)->decode(*ids));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(decode)->Unit(benchmark::kMillisecond);

void scan(benchmark::State& state) {
  using volta::tokenizers::KnownPattern;
  const std::string text = sample_text();
  const auto pattern = static_cast<KnownPattern>(state.range(0));
  std::vector<volta::tokenizers::Span> words;
  for (auto _ : state) {
    words.clear();
    volta::WorkBudget budget(volta::text_work_limits(text.size()));
    benchmark::DoNotOptimize(
        volta::tokenizers::scan_words(pattern, text, 0, words, budget).has_value());
    benchmark::DoNotOptimize(words.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(scan)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

// Passes over the text until standard input ends: each line asks for one, so that the opponent can
// run in between.
int run_chunks(const char* tokenizer_path, const char* text_path) {
  const auto tokenizer = volta::load_tokenizer(tokenizer_path);
  const auto text = volta::read_text_file(text_path);
  if (!tokenizer || !text) {
    std::fprintf(stderr, "%s\n", (tokenizer ? text.error() : tokenizer.error()).message().c_str());
    return 1;
  }
  const auto chunks = chunks_of(*text);
  for (int c = std::getchar(); c != EOF; c = std::getchar()) {
    const auto begin = std::chrono::steady_clock::now();
    std::uint64_t sum = 0;
    std::size_t count = 0;
    for (const std::string_view chunk : chunks) {
      const auto ids = (*tokenizer)->encode_prompt(chunk);
      if (!ids) return 1;
      for (const std::int32_t id : *ids) sum = sum * 31 + static_cast<std::uint64_t>(id);
      count += ids->size();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("%.9f %zu %llu\n", seconds.count(), count, static_cast<unsigned long long>(sum));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "--chunks") return run_chunks(argv[2], argv[3]);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
