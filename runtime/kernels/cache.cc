// Cache (docs/kernels.md): a buffer for AttendCached, marked so that it can be recognized.
#include "cache.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace xformc {
namespace {

// The mark is random, so that no file or input can contain it: memory that has it was written by this process.
struct Mark {
  uint32_t words[2];
};

const Mark& mark() {
  static const Mark drawn = [] {
    std::random_device random;
    return Mark{{random(), random()}};
  }();
  return drawn;
}

// Where the mark begins and ends in the buffer, in bytes: as much of it as the last row holds.
struct Place {
  Place(const Shape& shape, int64_t size) : end(times(product(shape, 0, shape.size()), size)) {
    begin = end - std::min<int64_t>({sizeof(Mark), times(shape.empty() ? 1 : shape.back(), size), end});
  }

  int64_t begin, end;
};

template <typename Stored>
struct Cache : Kernel {
  explicit Cache(const Attributes&) {}

  void run(const Context& context) override {
    const Value& sizes = context.input(0);
    const int64_t* data = sizes.as<int64_t>();
    const Shape shape(data, data + sizes.count());
    for (const int64_t axis : shape) require(axis >= 0, "a cache has no sizes below 0");
    mark_cache(context.make_output(0, shape, ANY), shape, sizeof(Stored));
  }
};

}  // namespace

void mark_cache(void* data, const Shape& shape, int64_t size) {
  const Place place(shape, size);
  if (place.end > 0) std::memcpy(static_cast<char*>(data) + place.begin, mark().words, place.end - place.begin);
}

bool is_cache(const void* data, const Shape& shape, int64_t size) {
  const Place place(shape, size);
  const auto* begin = static_cast<const char*>(data) + place.begin;
  return place.end <= 0 || std::memcmp(begin, mark().words, place.end - place.begin) == 0;
}

void add_cache(Operators& all) {
  static const Operator cache("Cache", make_kernel<Cache<float>>, {INT64}, {FLOAT});
  static const Operator narrow("CacheNarrow", make_kernel<Cache<uint16_t>>, {INT64}, {FLOAT16});
  all.push_back(&cache);
  all.push_back(&narrow);
  static const Operator int8("CacheInt8", make_kernel<Cache<int8_t>>, {INT64}, {INT8});
  all.push_back(&int8);
}

}  // namespace xformc
