// What products of matrices multiply: floats, or pairs of bfloat16s. Both products of a pair are
// added to a float in the time of one.

#ifndef CIFAR10_KERNELS_OPERANDS_H_
#define CIFAR10_KERNELS_OPERANDS_H_

#include "lanes.h"

namespace cifar10 {
namespace INSTRUCTIONS {

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

}  // namespace INSTRUCTIONS
}  // namespace cifar10

#endif  // CIFAR10_KERNELS_OPERANDS_H_
