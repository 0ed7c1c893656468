// 3x3 convolutions of stride 1 and SAME padding by Winograd's minimal filtering (Lavin & Gray 2015,
// arXiv:1509.09308), for few channels: tiles of 4x4 outputs take 36 products a pair of channels
// instead of 144, tiles of 5x5 take 49 instead of 225, and those of 3x3 25 instead of 81. All that a few tiles need stays in a core's
// caches from the images that are read to those that are written, so that the saved products are
// saved time, too.
//
// Arrays are those of tf.nn.conv2d: images [count, height, width, channels], filters
// [3, 3, inputs, filters]. Elements are float, or uint16_t for the bits of a bfloat16; all is
// computed in float, except that avx512_bf16 rounds what it multiplies to bfloat16.

#ifndef CIFAR10_KERNELS_WINOGRAD_H_
#define CIFAR10_KERNELS_WINOGRAD_H_

#include <cstdint>

#include "normalisation.h"

namespace cifar10 {

constexpr int kChannels = 16;  // channels come in multiples of these
constexpr int kInputs = 8;  // inputs, of which there are at least kChannels, in multiples of these

// A convolution's sizes.
struct Shape {
  int64_t count, height, width, inputs, filters;

  // Outputs of a tile along an axis: 3 if an image is a single such tile, else 4 or 5, which takes
  // fewer products.
  int Tile() const {
    if (height <= 3 && width <= 3) return 3;
    return Products(5) < Products(4) ? 5 : 4;
  }

  // Products of an image and a pair of channels.
  int64_t Products(int tile) const { return TilesOf(tile) * (tile + 2) * (tile + 2); }

  // Points of evaluation, along both axes.
  int Points() const { return (Tile() + 2) * (Tile() + 2); }

  // Tiles that cover an image, the last of them perhaps in part.
  int64_t Down() const { return (height + Tile() - 1) / Tile(); }
  int64_t Across() const { return (width + Tile() - 1) / Tile(); }

  // Rows of tiles, of all images together: what is shared out among threads.
  int64_t TileRows() const { return count * Down(); }

 private:
  int64_t TilesOf(int tile) const {
    return ((height + tile - 1) / tile) * ((width + tile - 1) / tile);
  }
};

// Functions of one element type and one size of tiles, compiled for one instruction set.
template <typename Element>
struct Functions {
  // Floats that a call of one of the next two needs as `scratch`, aligned to 64 bytes.
  int64_t (*scratch)(const Shape&);
  // Outputs of the tile rows from `begin` to `end`; `evaluated` is what `evaluate` made.
  void (*convolve)(const Shape&, int64_t begin, int64_t end, const Element* images,
                   const float* evaluated, const Epilogue<Element>&, Element* outputs,
                   float* scratch);
  // Adds what the tile rows from `begin` to `end` contribute to the filters' gradient to `sums`,
  // float[Points() * inputs * filters].
  void (*correlate)(const Shape&, int64_t begin, int64_t end, const Element* images,
                    const Element* upstream, float* sums, float* scratch);
  // Evaluates filters at all points, for `convolve`; memory for
  // float[Points() * inputs * filters].
  void (*evaluate)(const Shape&, const Element* weights, float* evaluated);
  // The filters' gradient, of all sums together.
  void (*interpolate)(const Shape&, const float* sums, Element* gradient);
};

// Those of one element type: for tiles of 3, of 4, and of 5.
template <typename Element>
using TileFunctions = Functions<Element>[3];

namespace avx512 {
extern const TileFunctions<float> kFloat;
extern const TileFunctions<uint16_t> kBfloat16;
}  // namespace avx512

namespace avx512_bf16 {
extern const TileFunctions<uint16_t> kBfloat16;
}  // namespace avx512_bf16

namespace avx2 {
extern const TileFunctions<float> kFloat;
extern const TileFunctions<uint16_t> kBfloat16;
}  // namespace avx2

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_WINOGRAD_H_
