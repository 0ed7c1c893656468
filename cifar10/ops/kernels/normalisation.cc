// Compiled once for each instruction set, whose name INSTRUCTIONS is.

#include "normalisation.h"

#include <algorithm>
#include <type_traits>

#include "lanes.h"

namespace cifar10 {
namespace INSTRUCTIONS {
namespace {

// Vectors of channels that are computed together; with fewer of them, more rows: enough independent
// sums that none waits for the one before.
constexpr int kVectors = 4;

// Calls body(count, channel) for all channels, in groups of `count` vectors, a constant.
template <typename Body>
INLINE void ForChannels(int64_t channels, const Body& body) {
  int64_t at = 0;
  for (; at + 4 * kLanes <= channels; at += 4 * kLanes) body(std::integral_constant<int, 4>(), at);
  for (; at + 2 * kLanes <= channels; at += 2 * kLanes) body(std::integral_constant<int, 2>(), at);
  for (; at < channels; at += kLanes) body(std::integral_constant<int, 1>(), at);
}

// Some neighbouring channels' numbers of a line.
template <int count>
struct Constants {
  INLINE explicit Constants(const float* from) {
    for (int index = 0; index < count; ++index) of[index] = Load(from + index * kLanes);
  }
  Lanes of[count];
};

template <int count>
struct Channels {
  INLINE Channels(const Line& line, int64_t at)
      : mean(line.mean + at), factor(line.factor + at), offset(line.offset + at) {}

  INLINE Lanes Normalised(int index, Lanes x) const {
    return (x - mean.of[index]) * factor.of[index] + offset.of[index];
  }

  const Constants<count> mean, factor, offset;
};

INLINE Lanes Where(Lanes y, Lanes upstream) { return y > 0.0f ? upstream : Lanes{}; }

// Two sums over rows for each of `count` vectors of channels. `add(row, index, sums)` adds what a
// row contributes to two sums. Few rows are added one after the other, then the sums of these: each
// addition rounds by a share of the sum so far.
template <int count, typename Add>
INLINE void SumRows(int64_t rows, float* first, float* second, const Add& add) {
  constexpr int kTogether = kVectors / count, kRows = 16 * kTogether;
  Lanes all[count][2] = {};
  for (int64_t row = 0; row < rows;) {
    const int64_t end = std::min(rows, row + kRows);
    Lanes sums[kTogether][count][2] = {};
    for (; row + kTogether <= end; row += kTogether) {
      for (int some = 0; some < kTogether; ++some) {
        for (int index = 0; index < count; ++index) add(row + some, index, sums[some][index]);
      }
    }
    for (; row < end; ++row) {
      for (int index = 0; index < count; ++index) add(row, index, sums[0][index]);
    }
    for (int some = 0; some < kTogether; ++some) {
      for (int index = 0; index < count; ++index) {
        for (int which = 0; which < 2; ++which) all[index][which] += sums[some][index][which];
      }
    }
  }
  for (int index = 0; index < count; ++index) {
    Store(first + index * kLanes, all[index][0]);
    Store(second + index * kLanes, all[index][1]);
  }
}

template <typename Element>
void Moments(int64_t rows, int64_t channels, const Element* x, const float* shift, float* sums,
             float* squares) {
  ForChannels(channels, [&](auto count, int64_t at) INLINE_LAMBDA {
    const Constants<count> shifts(shift + at);
    SumRows<count>(rows, sums + at, squares + at,
                   [&](int64_t row, int index, Lanes* sums) INLINE_LAMBDA {
                     const Lanes in = Load(x + row * channels + at + index * kLanes);
                     const Lanes deviation = in - shifts.of[index];
                     sums[0] += deviation;
                     sums[1] += deviation * deviation;
                   });
  });
}

template <typename Element>
void Apply(int64_t rows, int64_t channels, const Element* x, const Element* shortcut,
           const Line& line, Element* y) {
  ForChannels(channels, [&](auto count, int64_t at) INLINE_LAMBDA {
    const Channels<count> own(line, at);
    for (int64_t row = 0; row < rows; ++row) {
      for (int index = 0; index < count; ++index) {
        const int64_t place = row * channels + at + index * kLanes;
        Lanes sum = own.Normalised(index, Load(x + place));
        if (shortcut != nullptr) sum += Load(shortcut + place);
        Store(y + place, Relu(sum));
      }
    }
  });
}

template <typename Element>
void Sums(int64_t rows, int64_t channels, const Element* x, const Element* y,
          const Element* upstream, const Line& line, float* sums, float* products,
          Element* of_shortcut) {
  ForChannels(channels, [&](auto count, int64_t at) INLINE_LAMBDA {
    const Channels<count> own(line, at);
    SumRows<count>(rows, sums + at, products + at,
                   [&](int64_t row, int index, Lanes* sums) INLINE_LAMBDA {
                     const int64_t place = row * channels + at + index * kLanes;
                     const Lanes in = Load(x + place), above = Load(upstream + place);
                     Lanes behind;
                     if (y != nullptr) {
                       behind = Where(Load(y + place), above);
                       Store(of_shortcut + place, behind);
                     } else {
                       behind = Where(own.Normalised(index, in), above);
                     }
                     sums[0] += behind;
                     sums[1] += behind * (in - own.mean.of[index]);
                   });
  });
}

template <typename Element>
void Gradient(int64_t rows, int64_t channels, const Element* x, const Element* upstream,
              bool has_shortcut, const Line& line, const float* mean_gradient, const float* slope,
              Element* gradient) {
  ForChannels(channels, [&](auto count, int64_t at) INLINE_LAMBDA {
    const Channels<count> own(line, at);
    const Constants<count> means(mean_gradient + at), slopes(slope + at);
    for (int64_t row = 0; row < rows; ++row) {
      for (int index = 0; index < count; ++index) {
        const int64_t place = row * channels + at + index * kLanes;
        const Lanes in = Load(x + place), above = Load(upstream + place);
        const Lanes behind = has_shortcut ? above : Where(own.Normalised(index, in), above);
        const Lanes centred = in - own.mean.of[index];
        Store(gradient + place,
              own.factor.of[index] * (behind - means.of[index] - centred * slopes.of[index]));
      }
    }
  });
}

template <typename Element>
constexpr Normalisation<Element> kAll = {Moments<Element>, Apply<Element>, Sums<Element>,
                                         Gradient<Element>};

}  // namespace

const Normalisation<float> kFloatNormalisation = kAll<float>;
const Normalisation<uint16_t> kBfloat16Normalisation = kAll<uint16_t>;

}  // namespace INSTRUCTIONS
}  // namespace cifar10
