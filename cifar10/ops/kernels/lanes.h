// Vectors of channels, of whatever size the registers are that this is compiled for.

#ifndef CIFAR10_KERNELS_LANES_H_
#define CIFAR10_KERNELS_LANES_H_

#include <immintrin.h>

#include <cstdint>

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
// in what arithmetic makes of other numbers; row_blocks.h sees to the float32s that ops are given.
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

}  // namespace INSTRUCTIONS
}  // namespace cifar10

#endif  // CIFAR10_KERNELS_LANES_H_
