// 3x3 convolutions of stride 1 and SAME padding by Winograd's minimal filtering (Lavin & Gray 2015,
// arXiv:1509.09308), for few channels: tiles of 4x4 outputs take 36 products a pair of channels
// instead of 144. All that a few tiles need stays in a core's caches from the images that are read
// to those that are written, so that the saved products are saved time, too.
//
// Arrays are those of tf.nn.conv2d: images [count, height, width, channels], filters
// [3, 3, inputs, filters]. Elements are float, or uint16_t for the bits of a bfloat16; all is
// computed in float.

#ifndef CIFAR10_KERNELS_WINOGRAD_H_
#define CIFAR10_KERNELS_WINOGRAD_H_

#include <cstdint>

namespace cifar10 {

constexpr int kTile = 4;       // outputs of a tile along an axis
constexpr int kPoints = 6;     // inputs of a tile along an axis, and points of evaluation
constexpr int kChannels = 16;  // channels come in multiples of these
constexpr int kInputs = 8;     // inputs, of which there are at least kChannels, in multiples of these

// A convolution's sizes.
struct Shape {
  int64_t count, height, width, inputs, filters;

  // Tiles that cover an image, the last of them perhaps in part.
  int64_t Down() const { return (height + kTile - 1) / kTile; }
  int64_t Across() const { return (width + kTile - 1) / kTile; }

  // Rows of tiles, of all images together: what is shared out among threads.
  int64_t TileRows() const { return count * Down(); }
};

// Functions of one element type, compiled for one instruction set.
template <typename Element>
struct Functions {
  // Floats that a call of one of the next two needs as `scratch`, aligned to 64 bytes.
  int64_t (*scratch)(const Shape&);
  // Outputs of the tile rows from `begin` to `end`; `evaluated` is what `evaluate` made.
  void (*convolve)(const Shape&, int64_t begin, int64_t end, const Element* images,
                   const float* evaluated, Element* outputs, float* scratch);
  // Adds what the tile rows from `begin` to `end` contribute to the filters' gradient to `sums`,
  // float[kPoints * kPoints * inputs * filters].
  void (*correlate)(const Shape&, int64_t begin, int64_t end, const Element* images,
                    const Element* upstream, float* sums, float* scratch);
  // Evaluates filters at all points: float[kPoints * kPoints * inputs * filters].
  void (*evaluate)(const Shape&, const Element* weights, float* evaluated);
  // The filters' gradient, of all sums together.
  void (*interpolate)(const Shape&, const float* sums, Element* gradient);
};

namespace avx512 {
extern const Functions<float> kFloat;
extern const Functions<uint16_t> kBfloat16;
}  // namespace avx512

namespace avx2 {
extern const Functions<float> kFloat;
extern const Functions<uint16_t> kBfloat16;
}  // namespace avx2

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_WINOGRAD_H_
