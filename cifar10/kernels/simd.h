// Vectors of channels, of whatever size the registers are that this is compiled for; what products
// of matrices multiply, which is floats, or pairs of bfloat16s; these products, for what is in
// registers and near caches; and what a convolution does with its outputs before it stores them.

#ifndef CIFAR10_KERNELS_SIMD_H_
#define CIFAR10_KERNELS_SIMD_H_

#include <immintrin.h>

#include <cstdint>

#include "norm.h"

namespace cifar10 {
namespace INSTRUCTIONS {

// Channels that are computed side by side, in one register.
#ifdef __AVX512F__
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif

// Vectors of the compiler's, on which arithmetic is done lane by lane. In memory they lie where
// their elements happen to.
typedef float Lanes __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Bits __attribute__((vector_size(4 * kLanes)));
typedef float LanesInMemory __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef uint16_t HalvesInMemory __attribute__((vector_size(2 * kLanes), aligned(2), may_alias));
typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));

#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))  // after a lambda's parameters

INLINE Lanes Load(const float* from) { return *reinterpret_cast<const LanesInMemory*>(from); }

INLINE void Store(float* to, Lanes lanes) { *reinterpret_cast<LanesInMemory*>(to) = lanes; }

// A bfloat16 is the upper half of a float.
INLINE Lanes Load(const uint16_t* from) {
#ifdef __AVX512F__
  // GCC 12 makes five instructions of __builtin_convertvector.
  const auto halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return reinterpret_cast<Lanes>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
#else
  const auto halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return reinterpret_cast<Lanes>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
#endif
}

// Rounds to nearest, ties to even. A NaN stays one if its lower half is zero, as in bfloat16s and
// in what arithmetic makes of other numbers; `Normaliser` in dispatch.h sees to the float32s that
// ops are given.
INLINE void Store(uint16_t* to, Lanes lanes) {
  Bits bits = reinterpret_cast<Bits>(lanes);
  bits += 0x7fff + ((bits >> 16) & 1);
#ifdef __AVX512F__
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(bits >> 16)));
#else
  *reinterpret_cast<HalvesInMemory*>(to) = __builtin_convertvector(bits >> 16, Halves);
#endif
}

INLINE Lanes Relu(Lanes x) { return x < 0.0f ? Lanes{} : x; }  // NaN stays NaN.

// The bits of two bfloat16s, of which the lower half is the first one.
enum class Pair : uint32_t {};

template <typename Operand>
struct Numbers {
  static constexpr int kCount = 1;  // in an operand
};
template <>
struct Numbers<Pair> {
  static constexpr int kCount = 2;
};

INLINE Lanes AddProducts(Lanes sums, float left, Lanes right) { return sums + left * right; }

// Stores a vector of operands, of each as many numbers as are in one.
INLINE void StoreOperands(float* to, const Lanes numbers[1]) { Store(to, numbers[0]); }

// Which numbers of a matrix [rows, channels] are in a pair: those of neighbouring channels, in the
// order of the matrix, or those of neighbouring rows, as [rows / 2, channels] pairs.
enum class Neighbours { kChannels, kRows };

// Where a row of numbers lies.
template <typename Operand, Neighbours neighbours>
class Place;

template <Neighbours neighbours>
class Place<float, neighbours> {
 public:
  INLINE Place(float* matrix, int64_t row, int64_t channels)
      : to_(matrix + row * channels), channels_(channels) {}

  // Stores numbers of the row that is `rows` rows further, from `channel` on.
  INLINE void Put(int64_t rows, int64_t channel, Lanes numbers) const {
    Store(to_ + rows * channels_ + channel, numbers);
  }

 private:
  float* const to_;
  const int64_t channels_;
};

#ifdef __AVX512BF16__

typedef __m512i PairLanes;

INLINE PairLanes Load(const Pair* from) { return _mm512_loadu_si512(from); }

INLINE Lanes AddProducts(Lanes sums, Pair left, PairLanes right) {
  const PairLanes lefts = _mm512_set1_epi32(static_cast<int32_t>(left));
  return reinterpret_cast<Lanes>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sums),
                                                  reinterpret_cast<__m512bh>(lefts),
                                                  reinterpret_cast<__m512bh>(right)));
}

// Rounds to nearest, ties to even; in the lower halves.
INLINE PairLanes Rounded(Lanes numbers) {
  const auto halves = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(numbers));
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(halves));
}

INLINE void StoreOperands(Pair* to, const Lanes numbers[2]) {
  const PairLanes second = _mm512_slli_epi32(Rounded(numbers[1]), 16);
  _mm512_storeu_si512(to, _mm512_or_si512(Rounded(numbers[0]), second));
}

template <>
class Place<Pair, Neighbours::kChannels> {
 public:
  INLINE Place(Pair* matrix, int64_t row, int64_t channels)
      : to_(reinterpret_cast<uint16_t*>(matrix) + row * channels), channels_(channels) {}

  INLINE void Put(int64_t rows, int64_t channel, Lanes numbers) const {
    const auto halves = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(numbers));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to_ + rows * channels_ + channel),
                        reinterpret_cast<__m256i>(halves));
  }

 private:
  uint16_t* const to_;
  const int64_t channels_;
};

// The first row of a pair is stored before the second; until then, that is zero.
template <>
class Place<Pair, Neighbours::kRows> {
 public:
  INLINE Place(Pair* matrix, int64_t row, int64_t channels)
      : to_(matrix + row / 2 * channels), channels_(channels), is_second_(row % 2 == 1) {}

  // `rows` are even. Channels that are stored twice get the same bits twice.
  INLINE void Put(int64_t rows, int64_t channel, Lanes numbers) const {
    Pair* const to = to_ + rows / 2 * channels_ + channel;
    PairLanes pairs = Rounded(numbers);
    if (is_second_) pairs = _mm512_or_si512(_mm512_slli_epi32(pairs, 16), Load(to));
    _mm512_storeu_si512(to, pairs);
  }

 private:
  Pair* const to_;
  const int64_t channels_;
  const bool is_second_;
};

#endif

// A product's rows and columns, of vectors, that the registers hold, of which AVX-512 has twice as
// many. With two columns, a row's factor is loaded half as often.
constexpr int kRows = kLanes / 2, kColumns = 2;

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

// Returns what is stored at `place`, the outputs of some channels from `channel` on.
template <typename Element>
INLINE Lanes Finish(const Epilogue<Element>& epilogue, int64_t channel, int64_t place, Lanes out) {
  const Line& line = epilogue.line;
  if (line.factor == nullptr) return out;
  out = (out - Load(line.mean + channel)) * Load(line.factor + channel);
  out += Load(line.offset + channel);
  if (epilogue.shortcut != nullptr) out += Load(epilogue.shortcut + place);
  return Relu(out);
}

}  // namespace INSTRUCTIONS
}  // namespace cifar10

#endif  // CIFAR10_KERNELS_SIMD_H_
