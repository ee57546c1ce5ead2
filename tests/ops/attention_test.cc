// Cases of Attention and AttentionGrad: heads and groups, windows, with and without causality,
// packed rows, dropout, lengths around the kernels' blocks of 64 and 128 keys. The heads of 64 and
// of 128 elements have kernels of their own on GPUs.
#include "ops/op_case.h"

namespace volta::op_test {

namespace {

struct Sizes {
  std::string name;
  std::int64_t batch, time;
  AttentionShape shape;
  float dropout = 0.0f;
  double spread = 1.0;
};

// Heads of 64 and 128 elements.
std::vector<Sizes> wide_sizes() {
  std::vector<Sizes> all;
  for (const int dim : {64, 128}) {
    const std::string d = "_dim_" + std::to_string(dim);
    const auto add = [&](const std::string& name, std::int64_t batch, std::int64_t time, int heads,
                         int kv, bool packed) -> Sizes& {
      all.push_back({name + d, batch, time, {heads, kv, dim, 0, 0.125f, packed}});
      all.back().spread = 2.0;
      return all.back();
    };
    add("one_token", 2, 1, 1, 1, true);
    add("past_block", 2, 129, 2, 1, true);
    add("two_tiles", 1, 256, 1, 1, false);
    add("both_ways", 1, 140, 2, 1, true).shape.causal = false;
    add("window", 1, 200, 2, 2, true).shape.window = 70;
    Sizes& capped = add("capped_window", 1, 200, 1, 1, false);
    capped.shape.window = 130;
    capped.shape.softcap = 1.5f;
    add("dropout", 1, 132, 2, 1, true).dropout = 0.2f;
    // Rows of the mask that begin within a block of four random words.
    Sizes& odd = add("dropout_both_ways", 1, 135, 1, 1, false);
    odd.dropout = 0.3f;
    odd.shape.causal = false;
    add("negative_scale", 1, 70, 1, 1, true).shape.scale = -0.1f;
  }
  return all;
}

std::vector<Sizes> all_sizes() {
  std::vector<Sizes> all;
  for (const bool packed : {false, true}) {
    const std::string p = packed ? "_packed" : "";
    const auto add = [&](const std::string& name, std::int64_t batch, std::int64_t time, int heads,
                         int kv, int dim, int window, float dropout) {
      all.push_back({name + p, batch, time, {heads, kv, dim, window, 0.4f, packed}, dropout});
    };
    add("one_token", 1, 1, 1, 1, 4, 0, 0);
    add("small", 2, 5, 2, 2, 3, 0, 0);
    add("grouped", 2, 7, 4, 2, 5, 0, 0);
    add("one_kv_head", 1, 6, 3, 1, 4, 0, 0);
    add("window", 2, 9, 2, 1, 4, 3, 0);
    add("window_of_one", 1, 5, 1, 1, 4, 1, 0);
    add("dropout", 2, 6, 2, 1, 4, 0, 0.3f);
    add("block", 1, 64, 1, 1, 8, 0, 0);
    add("past_block", 1, 65, 2, 1, 16, 0, 0);
    add("long", 2, 150, 2, 2, 24, 0, 0);
    add("long_window", 1, 150, 2, 1, 17, 70, 0);
    add("long_dropout", 1, 131, 2, 1, 16, 0, 0.2f);
  }
  for (const Sizes& causal : std::vector<Sizes>(all)) {  // As in encoders.
    if (causal.shape.window > 0) continue;
    Sizes both = causal;
    both.name = "both_ways_" + causal.name;
    both.shape.causal = false;
    all.push_back(both);
  }
  for (const Sizes& plain : std::vector<Sizes>(all)) {  // Scores on both sides of the cap's bend.
    if (plain.time == 64 || plain.name.starts_with("one")) continue;
    Sizes capped = plain;
    capped.name = "capped_" + plain.name;
    capped.shape.softcap = 1.5f;
    capped.spread = 2.0;
    all.push_back(capped);
  }
  for (const Sizes& wide : wide_sizes()) all.push_back(wide);
  Sizes large = {"large_scores", 1, 30, {1, 1, 16, 0, 1.0f, false}};
  large.spread = 20;
  all.push_back(large);
  return all;
}

// q, k, v or qkv.
OpCase with_sequences(OpCase c, const Sizes& s) {
  const std::int64_t q = s.shape.heads * s.shape.head_dim;
  const std::int64_t kv = s.shape.kv_heads * s.shape.head_dim;
  const Values values = uniform(-s.spread, s.spread);
  if (s.shape.packed) return std::move(c).in(f32({s.batch, s.time, q + 2 * kv}), values);
  return std::move(c)
      .in(f32({s.batch, s.time, q}), values)
      .in(f32({s.batch, s.time, kv}), values)
      .in(f32({s.batch, s.time, kv}));
}

const Values kRng = list({123456789, 42});

}  // namespace

std::vector<OpCase> cases(const Attention&) {
  std::vector<OpCase> all;
  for (const Sizes& s : all_sizes()) {
    OpCase c = with_sequences(OpCase(s.name, Attention{s.shape, s.dropout, 7}), s);
    const std::size_t sequences = c.specs.size();
    if (s.dropout > 0) {
      c = std::move(c).in(rng_spec(), kRng);
    } else {
      for (std::size_t i = 0; i < sequences; ++i) c.rows.push_back(i);
    }
    if (s.time <= 10) {
      for (std::size_t i = 0; i < sequences; ++i) c.differentiable.push_back(i);
    }
    all.push_back(std::move(c));
  }
  return all;
}

std::vector<OpCase> cases(const AttentionGrad&) {
  std::vector<OpCase> all;
  for (const Sizes& s : all_sizes()) {
    OpCase c = with_sequences(OpCase(s.name, AttentionGrad{s.shape, s.dropout, 7}), s);
    const std::size_t sequences = c.specs.size();
    const std::int64_t q = s.shape.heads * s.shape.head_dim;
    c = std::move(c)
            .in(f32({s.batch, s.time, q}))
            .in(f32({s.batch, s.shape.heads, s.time}))
            .in(f32({s.batch, s.time, q}));
    if (s.dropout > 0) {
      c = std::move(c).in(rng_spec(), kRng);
    } else {
      for (std::size_t i = 0; i < sequences + 3; ++i) c.rows.push_back(i);
    }
    c.prepare = [s, sequences](std::vector<Array>& in) {
      std::vector<Array> forward(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(sequences));
      if (s.dropout > 0) forward.push_back(in.back());
      const auto out = reference::run(Attention{s.shape, s.dropout, 7}, forward);
      store_rounded(in[sequences], out[0]);
      store_rounded(in[sequences + 1], out[1]);
    };
    all.push_back(std::move(c));
  }
  return all;
}

}  // namespace volta::op_test
