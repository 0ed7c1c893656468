// 3x3 convolutions of stride 1 and SAME padding by Winograd's minimal filtering (Lavin & Gray 2015,
// arXiv:1509.09308), for few channels: tiles of 4x4 outputs take 36 products a pair of channels
// instead of 144, tiles of 5x5 take 49 instead of 225. All that a few tiles need stays in a core's
// caches from the images that are read to those that are written, so that the saved products are
// saved time, too.
//
// Arrays are those of tf.nn.conv2d: images [count, height, width, channels], filters
// [3, 3, inputs, filters]. Elements are float, or uint16_t for the bits of a bfloat16; all is
// computed in float, but kPairs round what they multiply to bfloat16.

#ifndef CIFAR10_KERNELS_WINOGRAD_H_
#define CIFAR10_KERNELS_WINOGRAD_H_

#include <algorithm>
#include <cstdint>

#include "norm.h"

namespace cifar10 {

constexpr int kInputs = 8;  // inputs, of which there are at least kChannels, in multiples of these

// Some rows of tiles, which are computed together: enough tiles that filters which are in registers
// or near caches serve for many, few enough that what is computed of them stays there, too.
constexpr int64_t kTilesTogether = 16;

// A convolution's sizes.
struct Shape {
  int64_t count, height, width, inputs, filters;
  int tile = 0;  // outputs of a tile along an axis: that of the functions which are used

  // Products of an image and a pair of channels with such tiles.
  int64_t Products(int side) const {
    return TilesOf(height, side) * TilesOf(width, side) * (side + 2) * (side + 2);
  }

  // Points of evaluation, along both axes.
  int Points() const { return (tile + 2) * (tile + 2); }

  // Tiles that cover an image, the last of them perhaps in part.
  int64_t Down() const { return TilesOf(height, tile); }
  int64_t Across() const { return TilesOf(width, tile); }

  // Rows of tiles, of all images together: what is shared out among threads.
  int64_t TileRows() const { return count * Down(); }

  // Rows of tiles that are computed together.
  int64_t RowsTogether() const { return std::max<int64_t>(1, kTilesTogether / Across()); }

 private:
  static int64_t TilesOf(int64_t length, int side) { return (length + side - 1) / side; }
};

// Functions of one element type and one size of tiles, compiled for one instruction set.
template <typename Element>
struct Functions {
  int tile;
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
  // Evaluates the filters of inputs from kInputs * `begin` to kInputs * `end` at all points, for
  // `convolve`. `evaluated` is memory for float[Points() * inputs * filters].
  void (*evaluate)(const Shape&, int64_t begin, int64_t end, const Element* weights,
                   float* evaluated);
  // The gradient of the filters of inputs from kInputs * `begin` to kInputs * `end`, of all sums
  // together.
  void (*interpolate)(const Shape&, int64_t begin, int64_t end, const float* sums,
                      Element* gradient);
};

// Those of one element type: for tiles of 4 and of 5, or, of pairs, of 3 and of 4, since larger
// tiles multiply rounding by more.
template <typename Element>
using TileFunctions = Functions<Element>[2];

namespace avx512 {
extern const TileFunctions<float> kFloat;
extern const TileFunctions<uint16_t> kBfloat16;
}  // namespace avx512

namespace avx512_bf16 {
extern const TileFunctions<uint16_t> kPairs;
}  // namespace avx512_bf16

namespace avx2 {
extern const TileFunctions<float> kFloat;
extern const TileFunctions<uint16_t> kBfloat16;
}  // namespace avx2

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_WINOGRAD_H_
