// Winograd's minimal filtering along one dimension: tiles of an odd number of outputs, and of four,
// by products at two points more.

#ifndef CIFAR10_KERNELS_TILES_H_
#define CIFAR10_KERNELS_TILES_H_

#include "simd.h"

namespace cifar10 {
namespace INSTRUCTIONS {

// The points are infinity and pairs p and -p of these: small and far apart, so that little is lost
// when what was computed at them cancels; found by experiment.
template <int side>
struct PairsOfPoints;
template <>
struct PairsOfPoints<3> {
  static constexpr double kAt[] = {0.4, 1.28};
};
template <>
struct PairsOfPoints<5> {
  static constexpr double kAt[] = {0.28, 0.85, 1.77};
};
template <>
struct PairsOfPoints<7> {
  static constexpr double kAt[] = {0.23, 0.68, 1.13, 2.18};
};

template <int side>
struct Coefficients {
  static constexpr int kPairs = (side + 1) / 2;

  constexpr Coefficients() : powers(), others(), all(), filter() {
    const auto& points = PairsOfPoints<side>::kAt;
    double product[kPairs + 1] = {1};
    for (int pair = 0; pair < kPairs; ++pair) Extend(product, points[pair]);
    for (int index = 0; index <= kPairs; ++index) all[index] = product[index];
    for (int pair = 0; pair < kPairs; ++pair) {
      double rest[kPairs + 1] = {1}, divisor = 2 * points[pair];
      for (int other = 0; other < kPairs; ++other) {
        if (other == pair) continue;
        Extend(rest, points[other]);
        divisor *= points[pair] * points[pair] - points[other] * points[other];
      }
      for (int index = 0; index < kPairs; ++index) others[pair][index] = rest[index];
      filter[pair] = 1 / divisor;
      double power = 1;
      for (int index = 0; index < side; ++index, power *= points[pair]) powers[pair][index] = power;
    }
  }

  float powers[kPairs][side];    // of each pair's point
  float others[kPairs][kPairs];  // the coefficients of the product of t - p^2 over all other pairs
  float all[kPairs + 1];         // those of the product over all pairs
  float filter[kPairs];          // what filters are multiplied with, so that products interpolate

 private:
  // Multiplies a polynomial by t - point^2.
  static constexpr void Extend(double* product, double point) {
    for (int index = kPairs; index > 0; --index) {
      product[index] = product[index - 1] - point * point * product[index];
    }
    product[0] *= -point * point;
  }
};

// Transformations of tiles of `side` outputs.
template <int side>
struct Odd {
  static constexpr int kPairs = Coefficients<side>::kPairs, kPoints = side + 2;
  static constexpr Coefficients<side> kOf{};

  // Evaluates the inputs of a tile.
  static INLINE void OfInputs(const Lanes in[kPoints], Lanes out[kPoints]) {
    Lanes last = kOf.all[0] * in[0];
    for (int index = 1; index <= kPairs; ++index) last += kOf.all[index] * in[2 * index];
    for (int pair = 0; pair < kPairs; ++pair) {
      Lanes even = kOf.others[pair][0] * in[0], odd = kOf.others[pair][0] * in[1];
      for (int index = 1; index < kPairs; ++index) {
        even += kOf.others[pair][index] * in[2 * index];
        odd += kOf.others[pair][index] * in[2 * index + 1];
      }
      out[2 * pair] = kOf.powers[pair][1] * even + odd;
      out[2 * pair + 1] = kOf.powers[pair][1] * even - odd;
    }
    out[kPoints - 1] = last;
  }

  // Likewise where the tile is a whole line: its first and last inputs, which are zero, are left
  // out.
  static INLINE void OfLine(const Lanes in[side], Lanes out[kPoints]) {
    Lanes last = Lanes{};
    for (int index = 1; index < kPairs; ++index) last += kOf.all[index] * in[2 * index - 1];
    for (int pair = 0; pair < kPairs; ++pair) {
      Lanes even = Lanes{}, odd = kOf.others[pair][0] * in[0];
      for (int index = 1; index < kPairs; ++index) {
        even += kOf.others[pair][index] * in[2 * index - 1];
        odd += kOf.others[pair][index] * in[2 * index];
      }
      out[2 * pair] = kOf.powers[pair][1] * even + odd;
      out[2 * pair + 1] = kOf.powers[pair][1] * even - odd;
    }
    out[kPoints - 1] = last;
  }

  // Interpolates outputs.
  static INLINE void ToOutputs(const Lanes in[kPoints], Lanes out[side]) {
    for (int index = 0; index < side; ++index) {
      out[index] = index == side - 1 ? in[kPoints - 1] : Lanes{};
    }
    for (int pair = 0; pair < kPairs; ++pair) {
      const Lanes even = in[2 * pair] + in[2 * pair + 1], odd = in[2 * pair] - in[2 * pair + 1];
      for (int index = 0; index < side; ++index) {
        out[index] += kOf.powers[pair][index] * (index % 2 == 0 ? even : odd);
      }
    }
  }

  // Evaluates the gradients of outputs: the transpose of the one above.
  static INLINE void OfUpstream(const Lanes in[side], Lanes out[kPoints]) {
    for (int pair = 0; pair < kPairs; ++pair) {
      Lanes even = in[0], odd = Lanes{};
      for (int index = 1; index < side; ++index) {
        (index % 2 == 0 ? even : odd) += kOf.powers[pair][index] * in[index];
      }
      out[2 * pair] = even + odd;
      out[2 * pair + 1] = even - odd;
    }
    out[kPoints - 1] = in[side - 1];
  }

  // Evaluates a filter.
  static INLINE void OfFilter(const Lanes in[3], Lanes out[kPoints]) {
    for (int pair = 0; pair < kPairs; ++pair) {
      const Lanes even = in[0] + kOf.powers[pair][2] * in[2], odd = kOf.powers[pair][1] * in[1];
      out[2 * pair] = kOf.filter[pair] * (even + odd);
      out[2 * pair + 1] = kOf.filter[pair] * (even - odd);
    }
    out[kPoints - 1] = in[2];
  }

  // Interpolates a filter's gradient: the transpose of the one above.
  static INLINE void ToFilter(const Lanes in[kPoints], Lanes out[3]) {
    out[0] = out[1] = Lanes{};
    out[2] = in[kPoints - 1];
    for (int pair = 0; pair < kPairs; ++pair) {
      const Lanes even = kOf.filter[pair] * (in[2 * pair] + in[2 * pair + 1]);
      const Lanes odd = kOf.filter[pair] * (in[2 * pair] - in[2 * pair + 1]);
      out[0] += even;
      out[1] += kOf.powers[pair][1] * odd;
      out[2] += kOf.powers[pair][2] * even;
    }
  }
};

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

// Transforms both axes of kIn x kIn vectors, load(row, column); calls put(row, column, vector) for
// kOut x kOut, without the rows from `rows` on.
template <int kIn, int kOut, void (*transform)(const Lanes*, Lanes*), typename From, typename To>
INLINE void TransformBoth(const From& load, const To& put, int64_t rows = kOut) {
  Lanes lines[kOut][kIn];
  for (int column = 0; column < kIn; ++column) {
    Lanes in[kIn], out[kOut];
    for (int row = 0; row < kIn; ++row) in[row] = load(row, column);
    transform(in, out);
    for (int row = 0; row < kOut; ++row) lines[row][column] = out[row];
  }
  for (int row = 0; row < kOut && row < rows; ++row) {
    Lanes out[kOut];
    transform(lines[row], out);
    for (int column = 0; column < kOut; ++column) put(row, column, out[column]);
  }
}

}  // namespace INSTRUCTIONS
}  // namespace cifar10

#endif  // CIFAR10_KERNELS_TILES_H_
