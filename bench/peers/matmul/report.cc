#include "report.h"

#include <fmt/format.h>

#include <cstdio>

namespace peers {
namespace {

const char* state(const Case& c) { return c.cold ? "cold" : "hot"; }

// Half the distance from the 10th to the 90th percentile, in percent of the median.
double spread(const Timing& timing) {
  const double rate = timing.rate();
  if (rate <= 0) return 0;
  return 50 * (quantile(timing.gops, 0.9) - quantile(timing.gops, 0.1)) / rate;
}

std::string to_text(const Ratio& ratio) {
  if (ratio.value <= 0) return "";
  return fmt::format(" {:.2f}x ({:.2f}..{:.2f}) of {}", ratio.value, ratio.low, ratio.high,
                     ratio.peer);
}

std::string to_text(const Mean& mean) {
  const Case& at = mean.worst_at();
  return fmt::format("geometric mean {:.3f} of {}, worst {:.2f} at {} x {} x {} {}",
                     mean.geometric(), mean.count(), mean.worst(), at.m, at.k, at.n, state(at));
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void to_json(volta::JsonWriter& json, const char* name, const Ratio& ratio) {
  if (ratio.value <= 0) return;
  json.key(name).begin_object().field("ratio", ratio.value);
  json.field("p10", ratio.low).field("p90", ratio.high).field("peer", ratio.peer).end_object();
}

void to_json(volta::JsonWriter& json, const char* name, const Mean& mean) {
  if (mean.empty()) return;
  const Case& at = mean.worst_at();
  json.key(name).begin_object().field("geometric_mean", mean.geometric());
  json.field("count", mean.count()).field("worst", mean.worst());
  json.field("worst_at", fmt::format("{}x{}x{} {}", at.m, at.k, at.n, state(at))).end_object();
}

}  // namespace

const Peak& Report::peak() const {
  const Peak& own = setting_.peaks[static_cast<std::size_t>(setting_.type)];
  return own.gops > 0 ? own : setting_.peaks.front();
}

void Report::begin(const Memory& before) {
  before_ = before;
  switch (output_) {
    case Output::kText: {
      std::string text = fmt::format(
          "# {}, {} threads, {} rounds, M x K x N, Gop/s\n# before: {}\n", type_name(setting_.type),
          setting_.threads, setting_.rounds, peers::to_text(before));
      text += "# peaks:";
      for (const Peak& one : setting_.peaks) {
        text += one.gops > 0
                    ? fmt::format(" {} {:.0f} ({})", type_name(one.type), one.gops, one.instruction)
                    : fmt::format(" {} none", type_name(one.type));
      }
      text += "\n#";
      for (const std::string& library : setting_.libraries) text += " " + library + ";";
      if (setting_.type == Type::kInt8) {
        text +=
            "\n# Volta takes f32 rows and its product includes rounding them to int8 with a scale "
            "for every 128,\n# scales of the weights, and an f32 result; oneDNN multiplies u8 by "
            "s8 to s32 and scales nothing.";
      }
      return print(text + "\n");
    }
    case Output::kCsv:
      return print("type,threads,m,k,n,state,contender,prepared,gops,p10,p90,right\n");
    case Output::kJson:
      break;
  }
  json_.begin_object().field("type", type_name(setting_.type)).field("threads", setting_.threads);
  json_.field("rounds", setting_.rounds).key("libraries").begin_array();
  for (const std::string& library : setting_.libraries) json_.value(library);
  json_.end_array().key("peaks").begin_object();
  for (const Peak& one : setting_.peaks) {
    json_.key(type_name(one.type)).begin_object().field("gops", one.gops);
    json_.field("instruction", one.instruction).end_object();
  }
  json_.end_object().key("before");
  peers::to_json(json_, before);
  json_.key("products").begin_array();
}

void Report::add(const Comparison& comparison) {
  for (const Timing& timing : comparison.timings) {
    if (timing.right) continue;
    const Case& c = comparison.sizes;
    std::fprintf(stderr, "%s is wrong at %ld x %ld x %ld\n", timing.name.c_str(), c.m, c.k, c.n);
  }
  const Ratio packed = comparison.packed();
  packed_.add(packed, comparison.sizes);
  plain_.add(comparison.plain(), comparison.sizes);
  const Case& c = comparison.sizes;
  if (c.m != c.k || c.m != c.n) by_rows_[{c.m, c.cold}].add(packed, c);
  if (output_ == Output::kText) add_text(comparison);
  if (output_ == Output::kCsv) add_csv(comparison);
  if (output_ == Output::kJson) add_json(comparison);
}

void Report::add_text(const Comparison& comparison) const {
  const Case& c = comparison.sizes;
  const Timing& ours = comparison.best();
  std::string text =
      fmt::format("{:>4} x {:>5} x {:>5} {:<4} {:>6.1f} +-{:.0f}% ({:.0f}% peak", c.m, c.k, c.n,
                  state(c), ours.rate(), spread(ours), 100 * ours.rate() / peak().gops);
  if (c.cold && before_.read_gbs > 0) {
    text += fmt::format(", {:.0f}% read", 100 * comparison.weight_gbs() / before_.read_gbs);
  }
  text += ")" + to_text(comparison.packed());
  const Ratio plain = comparison.plain();
  if (plain.value > 0) text += "; plain" + to_text(plain);
  text += " |";
  for (std::size_t i = 1; i < comparison.timings.size(); ++i) {
    const Timing& timing = comparison.timings[i];
    text += fmt::format(" {} {:.1f}", timing.name, timing.rate());
  }
  print(text + "\n");
}

void Report::add_csv(const Comparison& comparison) const {
  const Case& c = comparison.sizes;
  for (const Timing& timing : comparison.timings) {
    print(fmt::format("{},{},{},{},{},{},{},{},{:.2f},{:.2f},{:.2f},{}\n", type_name(setting_.type),
                      setting_.threads, c.m, c.k, c.n, state(c), timing.name, timing.prepared,
                      timing.rate(), quantile(timing.gops, 0.1), quantile(timing.gops, 0.9),
                      timing.right));
  }
}

void Report::add_json(const Comparison& comparison) {
  const Case& c = comparison.sizes;
  json_.begin_object().field("m", c.m).field("k", c.k).field("n", c.n).field("state", state(c));
  json_.field("peak_share", comparison.best().rate() / peak().gops);
  if (c.cold && before_.read_gbs > 0) {
    json_.field("read_share", comparison.weight_gbs() / before_.read_gbs);
  }
  to_json(json_, "packed", comparison.packed());
  to_json(json_, "plain", comparison.plain());
  json_.key("contenders").begin_array();
  for (const Timing& timing : comparison.timings) {
    json_.begin_object().field("name", timing.name).field("prepared", timing.prepared);
    json_.field("right", timing.right).field("gops", timing.rate());
    json_.field("p10", quantile(timing.gops, 0.1)).field("p90", quantile(timing.gops, 0.9));
    json_.end_object();
  }
  json_.end_array().end_object();
}

void Report::end_text(const Memory& after) const {
  std::string text;
  for (const auto& [group, mean] : by_rows_) {
    text +=
        fmt::format("# M {} {}: {}\n", group.first, group.second ? "cold" : "hot", to_text(mean));
  }
  if (!packed_.empty()) text += "# all: " + to_text(packed_) + "\n";
  if (!plain_.empty()) text += "# all, plain weights: " + to_text(plain_) + "\n";
  print(text + "# after: " + peers::to_text(after) + "\n");
}

void Report::end(const Memory& after) {
  if (output_ == Output::kText) return end_text(after);
  if (output_ == Output::kCsv) return;
  json_.end_array().key("rows").begin_array();
  for (const auto& [group, mean] : by_rows_) {
    json_.begin_object().field("m", group.first).field("state", group.second ? "cold" : "hot");
    to_json(json_, "packed", mean);
    json_.end_object();
  }
  json_.end_array();
  to_json(json_, "all", packed_);
  to_json(json_, "all_plain", plain_);
  json_.key("after");
  peers::to_json(json_, after);
  json_.end_object();
  print(json_.text() + "\n");
}

}  // namespace peers
