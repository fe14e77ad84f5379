// A program that does nothing, for the memory of a bare process.
#include <cstdio>

int main() {
  std::puts("0");
  std::fflush(stdout);
  std::getchar();
}
