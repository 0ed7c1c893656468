// Vectors of channels, of whatever size the registers are that this is compiled for.

#ifndef CIFAR10_KERNELS_LANES_H_
#define CIFAR10_KERNELS_LANES_H_

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
  const Halves halves = *reinterpret_cast<const HalvesInMemory*>(from);
  return reinterpret_cast<Lanes>(__builtin_convertvector(halves, Bits) << 16);
}

// Rounds to nearest, ties to even. A NaN stays one: its lower half is that of a bfloat16, zero.
INLINE void Store(uint16_t* to, Lanes lanes) {
  Bits bits = reinterpret_cast<Bits>(lanes);
  bits += 0x7fff + ((bits >> 16) & 1);
  *reinterpret_cast<HalvesInMemory*>(to) = __builtin_convertvector(bits >> 16, Halves);
}

}  // namespace INSTRUCTIONS
}  // namespace cifar10

#endif  // CIFAR10_KERNELS_LANES_H_
