// RowAt and Last (docs/kernels.md): a row of a table, and the last numbers of rows.
#include <algorithm>

#include "kernel.h"

namespace xformc {
namespace {

struct RowAt : Kernel {
  explicit RowAt(const Attributes&) {}

  void run(const Context& context) override {
    const Value& table = context.input(0);
    const int64_t rows = table.shape.at(0), row = single<int64_t>(context, 1);
    if (row < 0 || row >= rows) fail("RowAt: the table has no row " + std::to_string(row));
    const int64_t width = product(table.shape, 1, table.shape.size());
    Shape shape{1};
    shape.append(table.shape.begin() + 1, table.shape.end());
    std::copy_n(table.as<float>() + row * width, width, context.output<float>(0, shape));
  }
};

struct Last : Kernel {
  explicit Last(const Attributes&) {}

  void run(const Context& context) override {
    const Value& given = context.input(0);
    require(!given.shape.empty() && given.shape.back() > 0, "Last: there is no last number");
    Shape shape = given.shape;
    const int64_t length = shape.back(), rows = given.count() / length;
    shape.back() = 1;
    int64_t* last = context.output<int64_t>(0, shape);
    for (int64_t row = 0; row < rows; ++row) last[row] = given.as<int64_t>()[(row + 1) * length - 1];
  }
};

}  // namespace

void add_parts(Operators& all) {
  static const Operator take("RowAt", make_kernel<RowAt>, {FLOAT, INT64}, {FLOAT});
  static const Operator last("Last", make_kernel<Last>, {INT64}, {INT64});
  all.push_back(&take);
  all.push_back(&last);
}

}  // namespace xformc
