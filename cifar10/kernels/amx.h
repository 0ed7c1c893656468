// Products of matrices of bfloat16s in a thread's matrix registers (AMX).

#ifndef CIFAR10_KERNELS_AMX_H_
#define CIFAR10_KERNELS_AMX_H_

#include <cstdint>

#include "simd.h"

namespace cifar10 {
namespace INSTRUCTIONS {

// Makes all registers of this thread matrices of 16 rows of 64 bytes, as long as it lives.
class Registers {
 public:
  Registers() {
    alignas(64) Configuration all = {};
    all.palette = 1;
    for (int index = 0; index < 8; ++index) {
      all.row_bytes[index] = 64;
      all.rows[index] = 16;
    }
    // GCC 12 believes that this reads eight bytes.
    asm volatile("" : : "r"(&all) : "memory");
    _tile_loadconfig(&all);
  }
  ~Registers() { _tile_release(); }

  Registers(const Registers&) = delete;
  Registers& operator=(const Registers&) = delete;

 private:
  struct Configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
};

// The compiler does not know what matrix registers read.
INLINE void WriteAll() { asm volatile("" ::: "memory"); }

// Sums in registers 0 to 3, of kRows x kColumns matrices.
template <int kRows, int kColumns>
INLINE void Clear() {
  _tile_zero(0);
  if constexpr (kColumns > 1) _tile_zero(1);
  if constexpr (kRows > 1) _tile_zero(2);
  if constexpr (kRows > 1 && kColumns > 1) _tile_zero(3);
}

// They lie `down` and `across` floats apart, and their rows `step`.
template <int kRows, int kColumns>
INLINE void LoadSums(const float* from, int64_t down, int64_t across, int64_t step) {
  _tile_loadd(0, from, 4 * step);
  if constexpr (kColumns > 1) _tile_loadd(1, from + across, 4 * step);
  if constexpr (kRows > 1) _tile_loadd(2, from + down, 4 * step);
  if constexpr (kRows > 1 && kColumns > 1) _tile_loadd(3, from + down + across, 4 * step);
}

template <int kRows, int kColumns>
INLINE void StoreSums(float* to, int64_t down, int64_t across, int64_t step) {
  _tile_stored(0, to, 4 * step);
  if constexpr (kColumns > 1) _tile_stored(1, to + across, 4 * step);
  if constexpr (kRows > 1) _tile_stored(2, to + down, 4 * step);
  if constexpr (kRows > 1 && kColumns > 1) _tile_stored(3, to + down + across, 4 * step);
}

// Adds products of kRows matrices, whose rows lie `step` numbers apart, and kColumns matrices of
// pairs.
template <int kRows, int kColumns>
INLINE void AddProducts(const uint16_t* upper, const uint16_t* lower, int64_t step,
                        const uint16_t* left, const uint16_t* right) {
  constexpr int64_t kRow = 64;  // bytes
  _tile_loadd(4, upper, 2 * step);
  _tile_loadd(6, left, kRow);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kColumns > 1) {
    _tile_loadd(7, right, kRow);
    _tile_dpbf16ps(1, 4, 7);
  }
  if constexpr (kRows > 1) {
    _tile_loadd(5, lower, 2 * step);
    _tile_dpbf16ps(2, 5, 6);
  }
  if constexpr (kRows > 1 && kColumns > 1) _tile_dpbf16ps(3, 5, 7);
}

}  // namespace INSTRUCTIONS
}  // namespace cifar10

#endif  // CIFAR10_KERNELS_AMX_H_
