// GELU and its gradient, number by number. Elements are float, or uint16_t for the bits
// of a bfloat16; all is computed in float.

#ifndef CIFAR10_KERNELS_ACTIVATIONS_H_
#define CIFAR10_KERNELS_ACTIVATIONS_H_

#include <cstdint>

namespace cifar10 {

// Functions of one element type, compiled for one instruction set. An output may lie where an input
// does.
template <typename Element>
struct Activations {
  // x (1 + tanh(sqrt(2 / pi) (x + .044715 x^3))) / 2 (arXiv:1606.08415, section 2).
  void (*gelu)(int64_t count, const Element* x, Element* y);
  void (*gelu_gradient)(int64_t count, const Element* x, const Element* upstream,
                        Element* gradient);
};

namespace avx512 {
extern const Activations<float> kFloatActivations;
extern const Activations<uint16_t> kBfloat16Activations;
}  // namespace avx512

namespace avx2 {
extern const Activations<float> kFloatActivations;
extern const Activations<uint16_t> kBfloat16Activations;
}  // namespace avx2

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_ACTIVATIONS_H_
