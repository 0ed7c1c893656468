// 3x3 convolutions of stride 1 and SAME padding, for CPUs that multiply matrices of bfloat16s
// (AMX). Winograd's tiles would save products there, but evaluating and interpolating takes longer
// than they do, and rounds what is evaluated. So these are the products of the definition, and sums
// in float.
//
// Arrays are those of winograd.h, of bfloat16s. While it is computed, an image has a border: a line
// of zeros above and below, and one position at the beginning of each line, which is also the one
// behind the end of the line before. So a line has width + 1 positions, and what an output sees
// of a line, three positions of all channels, lies in a row, also at both ends. A register may hold
// more of the row, which is multiplied by zeros; so an infinity or a NaN may make outputs beside
// those that see it NaN, too.

#ifndef CIFAR10_KERNELS_DIRECT_H_
#define CIFAR10_KERNELS_DIRECT_H_

#include <algorithm>
#include <cstdint>

#include "winograd.h"

namespace cifar10 {

// A convolution, computed directly.
struct Direct {
  Shape shape;

  // Sums over so many positions are computed together, or over those of one image, so that reading
  // and writing sums takes less time than computing them.
  static constexpr int64_t kPositions = 512;

  // A matrix register has at most 16 rows of 32 bfloat16s, or of 16 floats.
  static constexpr int64_t kSide = 16, kDepth = 32;

  static int64_t RoundUp(int64_t number, int64_t multiple) {
    return (number + multiple - 1) / multiple * multiple;
  }

  // Positions of a line, and from one image to the next.
  int64_t Line() const { return shape.width + 1; }
  int64_t Image() const { return (shape.height + 1) * Line(); }

  // Images whose sums are computed together.
  int64_t Together() const {
    return std::max<int64_t>(1, std::min(shape.count, kPositions / Image()));
  }

  // Numbers from one position of the image to the next: in whole registers, whose rows do not cross
  // lines of the caches then, if no more products have to be computed for that.
  int64_t Channels() const {
    const int64_t whole = RoundUp(shape.inputs, kDepth);
    return 3 * whole <= RoundUp(3 * shape.inputs, kDepth) ? whole : shape.inputs;
  }

  // Numbers that an output sees of a line, in whole registers.
  int64_t Seen() const { return RoundUp(3 * Channels(), kDepth); }

  // bfloat16s of the filters as `pack` stores them.
  int64_t Packed() const { return 3 * Seen() * shape.filters; }

  // Inputs in whole registers.
  int64_t Inputs() const { return RoundUp(shape.inputs, kSide); }

  // Floats of the sums.
  int64_t Sums() const { return 9 * Inputs() * shape.filters; }
};

// Functions, compiled for one instruction set.
struct DirectFunctions {
  // Stores filters from kSide * `begin` to kSide * `end` in the order in which they are multiplied.
  // With `transposes`, the weights are those that compute `shape.inputs` from `shape.filters`.
  void (*pack)(const Direct&, int64_t begin, int64_t end, const uint16_t* weights, bool transposes,
               uint16_t* packed);
  // Floats that a call of one of the next two needs as `scratch`, aligned to 64 bytes.
  int64_t (*convolve_scratch)(const Direct&);
  int64_t (*correlate_scratch)(const Direct&);
  // Outputs of the images from `begin` to `end`.
  void (*convolve)(const Direct&, int64_t begin, int64_t end, const uint16_t* images,
                   const uint16_t* packed, const Epilogue<uint16_t>&, uint16_t* outputs,
                   float* scratch);
  // Adds what the images from `begin` to `end` contribute to the filters' gradient to `sums`,
  // float[9, filters, Inputs()].
  void (*correlate)(const Direct&, int64_t begin, int64_t end, const uint16_t* images,
                    const uint16_t* upstream, float* sums, float* scratch);
  // Adds the sums of `parts`, which lie `step` floats apart, for filters from kSide * `begin` to
  // kSide * `end`, and rounds them.
  void (*round)(const Direct&, int64_t begin, int64_t end, int64_t parts, int64_t step,
                const float* sums, uint16_t* gradient);
};

namespace amx {
extern const DirectFunctions kDirect;
}  // namespace amx

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_DIRECT_H_
