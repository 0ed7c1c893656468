// 3x3 convolutions of stride 1 and SAME padding by Winograd's minimal filtering, for small images
// of many channels: an image is a single tile, so that one of 7x7 takes 81 products a pair of
// channels instead of 441. What is computed of the filters is too large for a core's caches. So the
// steps are functions of their own, each for all that a group of images needs, between which data
// lies in the last cache: images are evaluated, matrices multiplied at each point ("plane"), with a
// row for each image, and outputs interpolated.
//
// Arrays are those of winograd.h. Matrices are made of floats:
//   rows: [plane, image, channel], with some floats between one image and the next
//   panels: [plane, kColumns vectors of channels, row, channel], what a product reads in order.

#ifndef CIFAR10_KERNELS_SMALL_IMAGES_H_
#define CIFAR10_KERNELS_SMALL_IMAGES_H_

#include <algorithm>
#include <cstdint>

#include "winograd.h"

namespace cifar10 {

// Images that are computed together: enough that a plane's filters, once read, serve for many, few
// enough that what is computed of them stays in the last cache.
constexpr int64_t kImagesTogether = 128;

// A convolution of small images.
struct SmallImages {
  Shape shape;
  int side;  // of the tile that images, which are no larger, are computed as: 3 or 7

  // Returns 0 for images that tiles of winograd.h cover better, or that are too large.
  static int SideOf(const Shape& shape) {
    const int64_t longer = std::max(shape.height, shape.width);
    return longer <= 3 ? 3 : longer >= 5 && longer <= 7 ? 7 : 0;
  }

  int Planes() const { return (side + 2) * (side + 2); }

  // Images of a group, and the rows of its matrices, whose number is a multiple of eight.
  int64_t Together() const { return std::min(kImagesTogether, shape.count); }
  int64_t Rows() const { return (Together() + 7) / 8 * 8; }

  // Floats between rows: one line of the caches more than there are channels, so that the
  // same channel of many images does not fall into the same few places of a cache.
  static int64_t Step(int64_t channels) { return channels + 16; }

  // Floats of a plane.
  int64_t InputPlane() const { return Step(Rows() * Step(shape.inputs)); }
  int64_t OutputPlane() const { return Step(Rows() * Step(shape.filters)); }
  int64_t FilterPlane() const { return Step(shape.inputs * shape.filters); }

  // Elements of some inputs' filters, mirrored, with channels swapped.
  int64_t Transposed() const { return 9 * kChannels * shape.filters; }
};

// Functions of one element type and one side, compiled for one instruction set.
template <typename Element>
struct SmallImageFunctions {
  // Evaluates images from `begin` to `end` of a group as rows.
  void (*evaluate)(const SmallImages&, int64_t begin, int64_t end, const Element* images,
                   float* rows);
  // Evaluates the gradients of outputs as panels.
  void (*evaluate_upstream)(const SmallImages&, int64_t begin, int64_t end, const Element* upstream,
                            float* panels);
  // Evaluates the filters of inputs from kChannels * `begin` to kChannels * `end` as panels. If
  // there is memory for Element[Transposed()], `transposed`, the weights are those that compute
  // `shape.inputs` from `shape.filters`.
  void (*evaluate_filters)(const SmallImages&, int64_t begin, int64_t end, const Element* weights,
                           Element* transposed, float* panels);
  // Multiplies the rows of `images` by filters, in planes from `begin` to `end`, to rows.
  void (*multiply)(const SmallImages&, int64_t images, int64_t begin, int64_t end,
                   const float* rows, const float* filters, float* products);
  // Adds the products of `images` rows and gradients to sums [plane, inputs, filters], or puts them
  // there.
  void (*correlate)(const SmallImages&, int64_t images, bool adds, int64_t begin, int64_t end,
                    const float* rows, const float* upstream, float* sums);
  // Interpolates the outputs of images.
  void (*interpolate)(const SmallImages&, int64_t begin, int64_t end, const float* products,
                      const Epilogue<Element>&, Element* outputs);
  // Interpolates the gradients of filters of inputs from kChannels * `begin` to kChannels * `end`.
  void (*interpolate_filters)(const SmallImages&, int64_t begin, int64_t end, const float* sums,
                              Element* gradient);
};

// Those of one element type: for sides of 3, and of 7.
template <typename Element>
using SmallImageSides = SmallImageFunctions<Element>[2];

namespace avx512 {
extern const SmallImageSides<float> kFloatSmallImages;
extern const SmallImageSides<uint16_t> kBfloat16SmallImages;
}  // namespace avx512

namespace avx2 {
extern const SmallImageSides<float> kFloatSmallImages;
extern const SmallImageSides<uint16_t> kBfloat16SmallImages;
}  // namespace avx2

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_SMALL_IMAGES_H_
