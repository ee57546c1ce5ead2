// Level: how deep a recursive function is in itself, counted for as long as a call lasts.
#pragma once

namespace volta::jinja {

class Level {
 public:
  explicit Level(int& depth) : depth_(depth) { ++depth_; }
  ~Level() { --depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  int& depth_;
};

}  // namespace volta::jinja
