// Compiled once for each instruction set, whose name INSTRUCTIONS is.

#include "activations.h"

#include <algorithm>

#include "lanes.h"

namespace cifar10 {
namespace INSTRUCTIONS {
namespace {

constexpr float kSlope = 0.7978845608f, kCubic = 0.044715f;  // The first is sqrt(2 / pi).
constexpr float kLog2OfE = 1.4426950409f;
// Beyond it GELU is 0 or x in float32, and what is computed below would overflow.
constexpr float kFarthest = 10.0f;
// 1.5 * 2^23: a float that this is added to is rounded to an integer, in the lowest bits.
constexpr float kRounds = 12582912.0f;

INLINE Lanes AtLeast(Lanes x, float least) { return x < least ? Lanes{} + least : x; }  // NaN: NaN

INLINE Lanes AtMost(Lanes x, float most) { return x > most ? Lanes{} + most : x; }

// 2^x for x from -126 to 127; a relative error of 2e-9, and rounding. The coefficients are a least
// squares fit of 2^x for x from -1/2 to 1/2.
INLINE Lanes PowerOf2(Lanes x) {
  const Lanes rounded = x + kRounds, rest = x - (rounded - kRounds);
  Lanes power = rest * 1.5337577e-4f + 1.3399860e-3f;
  power = power * rest + 9.6185198e-3f;
  power = power * rest + 5.5503290e-2f;
  power = power * rest + 2.4022646e-1f;
  power = power * rest + 6.9314718e-1f;
  power = power * rest + 1.0f;
  return power * reinterpret_cast<Lanes>((reinterpret_cast<Bits>(rounded) + 127) << 23);
}

// exp(-2 u), where u = sqrt(2 / pi) (x + .044715 x^3): (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)).
INLINE Lanes Exponential(Lanes near) {
  constexpr float kFactor = -2 * kSlope * kLog2OfE;
  return PowerOf2(near * (kFactor + kFactor * kCubic * near * near));
}

INLINE Lanes Value(Lanes x) {
  const Lanes above = AtLeast(x, -kFarthest);
  return above / (1.0f + Exponential(AtMost(above, kFarthest)));
}

INLINE Lanes Slope(Lanes x, Lanes upstream) {
  const Lanes near = AtMost(AtLeast(x, -kFarthest), kFarthest);
  const Lanes exponential = Exponential(near), share = 1.0f / (1.0f + exponential);
  const Lanes slope = 2 * kSlope + 6 * kSlope * kCubic * near * near;
  return upstream * (share + near * slope * share * (exponential * share));
}

// What does not fill a vector at the end goes through copies.
template <typename Element>
void Gelu(int64_t count, const Element* x, Element* to) {
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) Store(to + at, Value(Load(x + at)));
  if (at == count) return;
  Element last[kLanes] = {};
  std::copy(x + at, x + count, last);
  Store(last, Value(Load(last)));
  std::copy(last, last + (count - at), to + at);
}

template <typename Element>
void GeluGradient(int64_t count, const Element* x, const Element* upstream, Element* to) {
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    Store(to + at, Slope(Load(x + at), Load(upstream + at)));
  }
  if (at == count) return;
  Element last[kLanes] = {}, above[kLanes] = {};
  std::copy(x + at, x + count, last);
  std::copy(upstream + at, upstream + count, above);
  Store(last, Slope(Load(last), Load(above)));
  std::copy(last, last + (count - at), to + at);
}

template <typename Element>
constexpr Activations<Element> kAll = {Gelu<Element>, GeluGradient<Element>};

}  // namespace

const Activations<float> kFloatActivations = kAll<float>;
const Activations<uint16_t> kBfloat16Activations = kAll<uint16_t>;

}  // namespace INSTRUCTIONS
}  // namespace cifar10
