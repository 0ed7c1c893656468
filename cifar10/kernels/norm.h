// Batch normalisation (Ioffe & Szegedy 2015, arXiv:1502.03167) with what follows it in a ResNet: a
// shortcut that is added, where there is one, and ReLU. Each function computes some rows of a
// matrix [positions of all images, channels], so that rows can be shared out among threads.
//
// Elements are float, or uint16_t for the bits of a bfloat16; all is computed in float.

#ifndef CIFAR10_KERNELS_NORM_H_
#define CIFAR10_KERNELS_NORM_H_

#include <cstdint>

namespace cifar10 {

constexpr int kChannels = 16;  // channels come in multiples of these

// What a channel's numbers are normalised with: (x - mean) * factor + offset.
struct Line {
  const float *mean, *factor, *offset;  // [channels]
};

// What a convolution does with its outputs before it stores them: if there is a line, it stores
// ReLU(normalised outputs + shortcut). An output may lie where the shortcut does.
template <typename Element>
struct Epilogue {
  Line line = {};                     // null: outputs are stored as they are
  const Element* shortcut = nullptr;  // of the outputs' shape; null: there is none
};

// Functions of one element type, compiled for one instruction set. An output may lie where an input
// does. Without a shortcut, `shortcut` and `y` are null.
template <typename Element>
struct Normalisation {
  // The sums over rows of x - shift, which is float[channels], and of its square, likewise.
  void (*moments)(int64_t rows, int64_t channels, const Element* x, const float* shift, float* sums,
                  float* squares);
  // y = ReLU(normalised x + shortcut).
  void (*apply)(int64_t rows, int64_t channels, const Element* x, const Element* shortcut,
                const Line& line, Element* y);
  // The sums over rows of the gradient behind ReLU, and of that times x - mean: float[channels]
  // each. With a shortcut, whose gradient it is, the gradient behind ReLU is stored as well.
  void (*sums)(int64_t rows, int64_t channels, const Element* x, const Element* y,
               const Element* upstream, const Line& line, float* sums, float* products,
               Element* of_shortcut);
  // The gradient of x: factor * (gradient behind ReLU - mean_gradient - (x - mean) * slope). With a
  // shortcut, `upstream` is what `sums` stored.
  void (*gradient)(int64_t rows, int64_t channels, const Element* x, const Element* upstream,
                   bool has_shortcut, const Line& line, const float* mean_gradient,
                   const float* slope, Element* gradient);
};

namespace avx512 {
extern const Normalisation<float> kFloatNormalisation;
extern const Normalisation<uint16_t> kBfloat16Normalisation;
}  // namespace avx512

namespace avx2 {
extern const Normalisation<float> kFloatNormalisation;
extern const Normalisation<uint16_t> kBfloat16Normalisation;
}  // namespace avx2

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_NORM_H_
