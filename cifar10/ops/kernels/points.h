// Winograd's minimal filtering along one dimension: tiles of three outputs, by products at five
// points, of four, at six, or of five, at seven.

#ifndef CIFAR10_KERNELS_POINTS_H_
#define CIFAR10_KERNELS_POINTS_H_

#include "lanes.h"
#include "odd_tiles.h"

namespace cifar10 {
namespace INSTRUCTIONS {

template <int tile>
struct Tile;

template <>
struct Tile<4> {
  static constexpr int kPoints = 6, kTile = 4;

  // The points are 0, A, -A, B, -B and infinity: small and far apart, so that little is lost when
  // what was computed at them cancels.
  static constexpr float A = 0.6f, B = 1.3f;
  static constexpr float A2 = A * A, B2 = B * B, A3 = A2 * A, B3 = B2 * B;
  // What each pair of points is divided by, so that the products interpolate.
  static constexpr float kOf0 = 1 / (A2 * B2);
  static constexpr float kOfA = 1 / (2 * A2 * (A2 - B2)), kOfB = 1 / (2 * B2 * (B2 - A2));

  // Evaluates six inputs.
  static INLINE void OfInputs(const Lanes in[kPoints], Lanes out[kPoints]) {
    const Lanes even_a = in[4] - B2 * in[2], odd_a = in[3] - B2 * in[1];
    const Lanes even_b = in[4] - A2 * in[2], odd_b = in[3] - A2 * in[1];
    out[0] = A2 * B2 * in[0] - (A2 + B2) * in[2] + in[4];
    out[1] = even_a + A * odd_a;
    out[2] = even_a - A * odd_a;
    out[3] = even_b + B * odd_b;
    out[4] = even_b - B * odd_b;
    out[5] = A2 * B2 * in[1] - (A2 + B2) * in[3] + in[5];
  }

  // Interpolates four outputs.
  static INLINE void ToOutputs(const Lanes in[kPoints], Lanes out[kTile]) {
    const Lanes even_a = in[1] + in[2], odd_a = in[1] - in[2];
    const Lanes even_b = in[3] + in[4], odd_b = in[3] - in[4];
    out[0] = in[0] + even_a + even_b;
    out[1] = A * odd_a + B * odd_b;
    out[2] = A2 * even_a + B2 * even_b;
    out[3] = A3 * odd_a + B3 * odd_b + in[5];
  }

  // Evaluates the gradients of four outputs: the transpose of the one above.
  static INLINE void OfUpstream(const Lanes in[kTile], Lanes out[kPoints]) {
    const Lanes even_a = in[0] + A2 * in[2], odd_a = A * in[1] + A3 * in[3];
    const Lanes even_b = in[0] + B2 * in[2], odd_b = B * in[1] + B3 * in[3];
    out[0] = in[0];
    out[1] = even_a + odd_a;
    out[2] = even_a - odd_a;
    out[3] = even_b + odd_b;
    out[4] = even_b - odd_b;
    out[5] = in[3];
  }

  // Evaluates a filter.
  static INLINE void OfFilter(const Lanes in[3], Lanes out[kPoints]) {
    const Lanes even_a = in[0] + A2 * in[2], odd_a = A * in[1];
    const Lanes even_b = in[0] + B2 * in[2], odd_b = B * in[1];
    out[0] = kOf0 * in[0];
    out[1] = kOfA * (even_a + odd_a);
    out[2] = kOfA * (even_a - odd_a);
    out[3] = kOfB * (even_b + odd_b);
    out[4] = kOfB * (even_b - odd_b);
    out[5] = in[2];
  }

  // Interpolates a filter's gradient: the transpose of the one above.
  static INLINE void ToFilter(const Lanes in[kPoints], Lanes out[3]) {
    const Lanes even_a = kOfA * (in[1] + in[2]), odd_a = kOfA * (in[1] - in[2]);
    const Lanes even_b = kOfB * (in[3] + in[4]), odd_b = kOfB * (in[3] - in[4]);
    out[0] = kOf0 * in[0] + even_a + even_b;
    out[1] = A * odd_a + B * odd_b;
    out[2] = A2 * even_a + B2 * even_b + in[5];
  }
};

template <>
struct Tile<3> : Odd<3> {};

template <>
struct Tile<5> : Odd<5> {};

}  // namespace INSTRUCTIONS
}  // namespace cifar10

#endif  // CIFAR10_KERNELS_POINTS_H_
