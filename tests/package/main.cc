// The smallest program that links libvolta: headers are found, symbols are there, C++23 is on.
#include <volta/volta.h>

#include <cstdio>

int main() {
  volta::Result<int> answer = 42;
  std::printf("volta %s\n", volta::version().data());
  return answer && !volta::version().empty() ? 0 : 1;
}
