// Products of matrices, for what is in registers and near caches.

#ifndef CIFAR10_KERNELS_PRODUCTS_H_
#define CIFAR10_KERNELS_PRODUCTS_H_

#include "operands.h"

namespace cifar10 {
namespace INSTRUCTIONS {

// A product's rows and columns, of vectors, that the registers hold.
constexpr int kRows = 8, kColumns = kLanes / 8;

// A product of two matrices of operands, [kRows, depth] and [depth, columns * kLanes]; added to
// what there is, or in its place. Rows of the first are `row_step` apart, its columns `step`; rows
// of the second `right_step`, and those of the product `to_step`.
template <int columns, bool adds, typename Operand>
INLINE void Multiply(int64_t depth, const Operand* left, int64_t row_step, int64_t step,
                     const Operand* right, int64_t right_step, float* to, int64_t to_step) {
  Lanes sums[kRows][columns];
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < columns; ++column) {
      sums[row][column] = Lanes{};
    }
  }
  for (int64_t at = 0; at < depth; ++at) {
    decltype(Load(right)) factors[columns];
    for (int column = 0; column < columns; ++column) {
      factors[column] = Load(right + at * right_step + column * kLanes);
    }
    for (int row = 0; row < kRows; ++row) {
      const Operand factor = left[row * row_step + at * step];
      for (int column = 0; column < columns; ++column) {
        sums[row][column] = AddProducts(sums[row][column], factor, factors[column]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < columns; ++column) {
      float* const into = to + row * to_step + column * kLanes;
      Store(into, adds ? Load(into) + sums[row][column] : sums[row][column]);
    }
  }
}

}  // namespace INSTRUCTIONS
}  // namespace cifar10

#endif  // CIFAR10_KERNELS_PRODUCTS_H_
