#include "text/stop_strings.h"

#include <algorithm>

namespace volta {

StopStrings::StopStrings(std::span<const std::string> stops) {
  nodes_.emplace_back();
  for (const std::string& stop : stops) insert(stop);
  link();
}

void StopStrings::insert(std::string_view stop) {
  std::int32_t node = 0;
  for (const char c : stop) {
    const auto byte = static_cast<std::uint8_t>(c);
    std::int32_t found = child(node, byte);
    if (found < 0) {
      found = static_cast<std::int32_t>(nodes_.size());
      nodes_.push_back(
          {.byte = byte, .next_sibling = at(node).first_child, .depth = at(node).depth + 1});
      at(node).first_child = found;
    }
    node = found;
  }
  at(node).stop_bytes = at(node).depth;
}

// Sets the suffixes of all nodes, shorter prefixes first.
void StopStrings::link() {
  std::vector<std::int32_t> queue = {0};
  queue.reserve(nodes_.size());
  for (std::size_t head = 0; head < queue.size(); ++head) {
    const std::int32_t node = queue[head];
    for (std::int32_t c = at(node).first_child; c >= 0; c = at(c).next_sibling) {
      if (node != 0) at(c).suffix = next(at(node).suffix, at(c).byte);
      at(c).stop_bytes = std::max(at(c).stop_bytes, at(at(c).suffix).stop_bytes);
      queue.push_back(c);
    }
  }
}

std::int32_t StopStrings::child(std::int32_t node, std::uint8_t byte) const {
  std::int32_t found = at(node).first_child;
  while (found >= 0 && at(found).byte != byte) found = at(found).next_sibling;
  return found;
}

// The loop shortens the prefix at each step, and each byte lengthens it by one. So all calls
// together take linear time.
std::int32_t StopStrings::next(std::int32_t node, std::uint8_t byte) const {
  while (true) {
    const std::int32_t found = child(node, byte);
    if (found >= 0) return found;
    if (node == 0) return 0;
    node = at(node).suffix;
  }
}

std::size_t StopStrings::push(std::string_view piece) {
  if (stopped_) return length_;
  for (const char c : piece) {
    ++length_;
    state_ = next(state_, static_cast<std::uint8_t>(c));
    if (at(state_).stop_bytes == 0) continue;
    stopped_ = true;
    length_ -= at(state_).stop_bytes;
    return length_;
  }
  return length_ - at(state_).depth;
}

std::size_t StopStrings::finish() const { return length_; }

}  // namespace volta
