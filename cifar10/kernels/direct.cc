// Compiled once, for the instruction set whose name INSTRUCTIONS is.

#include "direct.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "amx.h"

namespace cifar10 {
namespace INSTRUCTIONS {
namespace {

constexpr int64_t kSide = Direct::kSide, kDepth = Direct::kDepth;
constexpr int64_t kOperand = kSide * kDepth;  // bfloat16s of a register
constexpr int64_t kSum = kSide * kSide;       // floats of a register

// Calls function(number, index) with a number of 1 or 2 for each two of `count` things, as a
// constant.
template <typename Function>
INLINE void ByTwos(int64_t count, const Function& function) {
  int64_t index = 0;
  for (; index + 2 <= count; index += 2) function(std::integral_constant<int, 2>(), index);
  if (index < count) function(std::integral_constant<int, 1>(), index);
}

// 16 pairs of bfloat16s, each of two rows.
INLINE __m512i Pairs(const uint16_t* first, const uint16_t* second) {
  const auto lower = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
  const auto upper = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
  return _mm512_or_si512(_mm512_cvtepu16_epi32(lower),
                         _mm512_slli_epi32(_mm512_cvtepu16_epi32(upper), 16));
}

void Pack(const Direct& sizes, int64_t begin, int64_t end, const uint16_t* weights, bool transposes,
          uint16_t* packed) {
  const int64_t inputs = sizes.shape.inputs, filters = sizes.shape.filters;
  const int64_t seen = sizes.Seen(), channels = sizes.Channels(), size = inputs * filters;
  const __m512i steps =
      _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                         _mm512_set1_epi32(static_cast<int>(inputs / 2)));
  for (int64_t block = begin; block < end; ++block) {
    uint16_t* to = packed + block * 3 * seen * kSide;
    for (int64_t line = 0; line < 3; ++line) {
      for (int64_t at = 0; at < seen; at += 2, to += 2 * kSide) {
        const int64_t position = line * 3 + at / channels, input = at % channels;
        const bool has = at < 3 * channels && input < inputs;
        __m512i pairs = _mm512_setzero_si512();
        if (has && transposes) {
          const uint16_t* const from = weights + (8 - position) * size + block * kSide * inputs;
          pairs = _mm512_i32gather_epi32(steps, from + input, 4);
        } else if (has) {
          const uint16_t* const from = weights + position * size + input * filters;
          pairs = Pairs(from + block * kSide, from + filters + block * kSide);
        }
        _mm512_storeu_si512(to, pairs);
      }
    }
  }
}

// What a convolution works with.
struct ConvolveScratch {
  ConvolveScratch(const Direct& sizes, float* memory)
      : sums(memory), image(reinterpret_cast<uint16_t*>(memory + 4 * kSum)) {
    std::fill_n(image, Numbers(sizes), 0);
  }

  static int64_t Size(const Direct& sizes) { return 4 * kSum + Numbers(sizes) / 2 + kSide; }

  // Numbers of an image with its border, and what whole registers read behind it.
  static int64_t Numbers(const Direct& sizes) {
    const int64_t rows = Direct::RoundUp(sizes.shape.height * sizes.Line(), kSide);
    return (rows + 2 * sizes.Line() + 2) * sizes.Channels() + sizes.Seen();
  }

  float* const sums;      // [2 * kSide, 2 * kSide]
  uint16_t* const image;  // with its border
};

// Stores the outputs of up to `rows` positions from `position` on, whose sums lie in rows.
template <int kColumns>
INLINE void StoreOutputs(const Direct& sizes, int64_t position, int64_t rows, const float* sums,
                         int64_t filter, const Epilogue<uint16_t>& epilogue, int64_t first,
                         uint16_t* outputs) {
  const Shape& shape = sizes.shape;
  int64_t line = position / sizes.Line(), column = position % sizes.Line();
  for (int64_t row = 0; row < rows; ++row) {
    if (column < shape.width && line < shape.height) {
      const int64_t place = first + (line * shape.width + column) * shape.filters + filter;
      for (int index = 0; index < kColumns; ++index) {
        const Lanes out = Load(sums + row * kColumns * kSide + index * kSide);
        const int64_t at = index * kSide;
        const Lanes done = Finish(epilogue, filter + at, place + at, out);
        // One instruction, where `Store` of simd.h has five.
        const auto halves = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(done));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(outputs + place + at),
                            reinterpret_cast<__m256i>(halves));
      }
    }
    if (++column == sizes.Line()) {
      column = 0;
      ++line;
    }
  }
}

// Copies an image to one with a border.
INLINE void CopyImage(const Direct& sizes, const uint16_t* from, uint16_t* to) {
  const int64_t inputs = sizes.shape.inputs, channels = sizes.Channels();
  const int64_t width = sizes.shape.width;
  for (int64_t row = 0; row < sizes.shape.height; ++row) {
    to += (row == 0 ? sizes.Line() + 1 : sizes.Line()) * channels;
    if (channels == inputs) {
      std::memcpy(to, from, 2 * width * inputs);
    } else {
      for (int64_t column = 0; column < width; ++column) {
        std::memcpy(to + column * channels, from + column * inputs, 2 * inputs);
      }
    }
    from += width * inputs;
  }
}

void Convolve(const Direct& sizes, int64_t begin, int64_t end, const uint16_t* images,
              const uint16_t* packed, const Epilogue<uint16_t>& epilogue, uint16_t* outputs,
              float* memory) {
  const Shape& shape = sizes.shape;
  const int64_t channels = sizes.Channels(), line = sizes.Line(), seen = sizes.Seen();
  const int64_t size = shape.height * shape.width * shape.inputs;
  const int64_t blocks = (shape.height * line + kSide - 1) / kSide;
  const ConvolveScratch scratch(sizes, memory);
  const Registers registers;
  for (int64_t image = begin; image < end; ++image) {
    CopyImage(sizes, images + image * size, scratch.image);
    WriteAll();
    const int64_t of_outputs = shape.height * shape.width * shape.filters;
    const int64_t first = image * of_outputs;
    ByTwos(shape.filters / kSide, [&](auto columns, int64_t column) INLINE_LAMBDA {
      const uint16_t* const left = packed + column * 3 * seen * kSide;
      const uint16_t* const right = left + 3 * seen * kSide;
      ByTwos(blocks, [&](auto rows, int64_t block) INLINE_LAMBDA {
        constexpr int kRows = decltype(rows)::value, kColumns = decltype(columns)::value;
        Clear<kRows, kColumns>();
        const uint16_t* upper = scratch.image + block * kSide * channels;
        int64_t at = 0;
        for (int tap = 0; tap < 3; ++tap, upper += line * channels) {
          for (int64_t number = 0; number < seen; number += kDepth, at += kOperand) {
            AddProducts<kRows, kColumns>(upper + number, upper + number + kSide * channels,
                                         channels, left + at, right + at);
          }
        }
        constexpr int64_t kStep = kColumns * kSide;
        StoreSums<kRows, kColumns>(scratch.sums, kSide * kStep, kSide, kStep);
        StoreOutputs<kColumns>(sizes, block * kSide, kRows * kSide, scratch.sums, column * kSide,
                               epilogue, first, outputs);
      });
    });
  }
}

// What a correlation works with: as many images as are computed together. The gradients of outputs
// have zeros where images have their border.
struct CorrelateScratch {
  CorrelateScratch(const Direct& sizes, float* memory)
      : positions(Positions(sizes)),
        step(Step(sizes)),
        rows(Rows(sizes)),
        upstream(reinterpret_cast<uint16_t*>(memory)),
        even(upstream + sizes.shape.filters * step),
        odd(even + 2 * rows * sizes.Inputs()),
        zeros(odd + 2 * rows * sizes.Inputs()) {
    std::fill_n(upstream, sizes.shape.filters * step, 0);
    std::fill_n(zeros, sizes.shape.inputs, 0);
  }

  static int64_t Size(const Direct& sizes) {
    const int64_t numbers = sizes.shape.filters * Step(sizes) + 4 * Rows(sizes) * sizes.Inputs();
    return (numbers + sizes.shape.inputs) / 2 + kSide;
  }

  static int64_t Positions(const Direct& sizes) {
    return Direct::RoundUp(sizes.Together() * sizes.Image(), kDepth);
  }

  // Numbers from one filter's to the next: an odd number of lines of the caches, so that the same
  // position of many filters does not fall into the same few places of a cache.
  static int64_t Step(const Direct& sizes) {
    return Direct::RoundUp(Positions(sizes) + kSide, 2 * kDepth) + kDepth;
  }

  // Pairs of positions that any tap sees.
  static int64_t Rows(const Direct& sizes) { return Positions(sizes) / 2 + sizes.Line() + 2; }

  const int64_t positions, step, rows;
  uint16_t* const upstream;  // [filters, step], by positions
  uint16_t* const even;      // [inputs / kSide, rows, kSide, 2]: pairs of positions 2n and 2n + 1
  uint16_t* const odd;       // likewise, of 2n + 1 and 2n + 2
  uint16_t* const zeros;     // [inputs]
};

// Transposes `rows` rows of 16 numbers, and as many rows of zeros as 16 lack, to rows `step` apart.
INLINE void Transpose(const uint16_t* from, int64_t rows, int64_t from_step, uint16_t* to,
                      int64_t step) {
  // Each round moves the highest bit of a register's index to the lowest of a number's, whose
  // highest, of three, it moves to the lowest of the register's. So rows 0 to 7 begin at even ones.
  __m256i in[16], out[16];
  for (int row = 0; row < 16; ++row) {
    const auto* const at = reinterpret_cast<const __m256i*>(from + row * from_step);
    in[2 * (row % 8) + row / 8] = row < rows ? _mm256_loadu_si256(at) : _mm256_setzero_si256();
  }
  for (int round = 0; round < 3; ++round) {
    for (int row = 0; row < 8; ++row) {
      out[2 * row] = _mm256_unpacklo_epi16(in[row], in[row + 8]);
      out[2 * row + 1] = _mm256_unpackhi_epi16(in[row], in[row + 8]);
    }
    std::copy_n(out, 16, in);
  }
  for (int column = 0; column < 8; ++column) {
    const __m256i first = in[column], second = in[column + 8];
    auto* const lower = reinterpret_cast<__m256i*>(to + column * step);
    auto* const upper = reinterpret_cast<__m256i*>(to + (column + 8) * step);
    _mm256_storeu_si256(lower, _mm256_permute2x128_si256(first, second, 0x20));
    _mm256_storeu_si256(upper, _mm256_permute2x128_si256(first, second, 0x31));
  }
}

// Stores the gradients of the outputs of `count` images, filter by filter.
INLINE void StoreByPositions(const Direct& sizes, int64_t count, const uint16_t* upstream,
                             const CorrelateScratch& scratch) {
  const Shape& shape = sizes.shape;
  const int64_t filters = shape.filters;
  for (int64_t row = 0; row < count * shape.height; ++row) {
    const int64_t place = row / shape.height * sizes.Image() + row % shape.height * sizes.Line();
    const uint16_t* const line = upstream + row * shape.width * filters;
    for (int64_t column = 0; column < shape.width; column += kSide) {
      const int64_t rows = std::min(kSide, shape.width - column);
      // Zeros that are stored behind a line are at its border, or where the next line will be.
      for (int64_t filter = 0; filter < filters; filter += kSide) {
        Transpose(line + column * filters + filter, rows, filters,
                  scratch.upstream + filter * scratch.step + place + column, scratch.step);
      }
    }
  }
  for (int64_t filter = 0; filter < filters; ++filter) {
    uint16_t* const own = scratch.upstream + filter * scratch.step;
    std::fill(own + count * sizes.Image(), own + scratch.positions, 0);
  }
}

// Stores `count` images with their borders as pairs of neighbouring positions.
INLINE void StorePairs(const Direct& sizes, int64_t count, const uint16_t* images,
                       const CorrelateScratch& scratch) {
  const Shape& shape = sizes.shape;
  const int64_t inputs = shape.inputs, whole = inputs / kSide * kSide;
  const uint16_t* row = images;  // of the image that comes next
  int64_t line = -1, column = 0, left = count * shape.height;
  // Returns the channels of the next position.
  const auto next = [&]() INLINE_LAMBDA {
    const bool is_inside = left > 0 && line >= 0 && column > 0;
    const uint16_t* const found = is_inside ? row + (column - 1) * inputs : scratch.zeros;
    if (++column == sizes.Line()) {
      if (line >= 0 && left > 0) {
        row += shape.width * inputs;
        --left;
      }
      column = 0;
      line = line + 1 == shape.height ? -1 : line + 1;
    }
    return found;
  };
  const uint16_t* first = next();
  for (int64_t pair = 0; pair < scratch.rows; ++pair) {
    const uint16_t *const second = next(), *const third = next();
    uint16_t *even = scratch.even + pair * 2 * kSide, *odd = scratch.odd + pair * 2 * kSide;
    const auto store = [&](int64_t input, __mmask16 has) INLINE_LAMBDA {
      const auto load = [&](const uint16_t* from) INLINE_LAMBDA {
        return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(has, from + input));
      };
      const __m512i middle = load(second);
      _mm512_storeu_si512(even, _mm512_or_si512(load(first), _mm512_slli_epi32(middle, 16)));
      _mm512_storeu_si512(odd, _mm512_or_si512(middle, _mm512_slli_epi32(load(third), 16)));
      even += scratch.rows * 2 * kSide;
      odd += scratch.rows * 2 * kSide;
    };
    for (int64_t input = 0; input < whole; input += kSide) store(input, 0xffff);
    if (whole < inputs) store(whole, 0xff);  // eight more
    first = third;
  }
}

void Correlate(const Direct& sizes, int64_t begin, int64_t end, const uint16_t* images,
               const uint16_t* upstream, float* sums, float* memory) {
  const Shape& shape = sizes.shape;
  const int64_t size = shape.height * shape.width, together = sizes.Together();
  const int64_t filters = shape.filters, inputs = sizes.Inputs(), blocks = inputs / kSide;
  const CorrelateScratch scratch(sizes, memory);
  const Registers registers;
  for (int64_t first = begin; first < end; first += together) {
    const int64_t count = std::min(together, end - first);
    StoreByPositions(sizes, count, upstream + first * size * filters, scratch);
    StorePairs(sizes, count, images + first * size * shape.inputs, scratch);
    WriteAll();
    // The sums of a tap and some inputs are multiplied from pairs that begin at a place of their
    // own.
    const auto pairs_of = [&](int64_t number) INLINE_LAMBDA {
      const int64_t block = number / 9, tap = number % 9;
      const int64_t position = tap / 3 * sizes.Line() + tap % 3;
      return (position % 2 ? scratch.odd : scratch.even) +
             (block * scratch.rows + position / 2) * 2 * kSide;
    };
    const auto sums_of = [&](int64_t number) INLINE_LAMBDA {
      return sums + number % 9 * filters * inputs + number / 9 * kSide;
    };
    ByTwos(filters / kSide, [&](auto rows, int64_t row) INLINE_LAMBDA {
      const uint16_t* const upper = scratch.upstream + row * kSide * scratch.step;
      const uint16_t* const lower = upper + kSide * scratch.step;
      ByTwos(9 * blocks, [&](auto columns, int64_t number) INLINE_LAMBDA {
        constexpr int kRows = decltype(rows)::value, kColumns = decltype(columns)::value;
        float* const to = sums_of(number) + row * kSide * inputs;
        const int64_t across = sums_of(number + kColumns - 1) - sums_of(number);
        const uint16_t *const left = pairs_of(number), *const right =
                                                           pairs_of(number + kColumns - 1);
        LoadSums<kRows, kColumns>(to, kSide * inputs, across, inputs);
        for (int64_t position = 0; position < scratch.positions; position += kDepth) {
          AddProducts<kRows, kColumns>(upper + position, lower + position, scratch.step,
                                       left + position * kSide, right + position * kSide);
        }
        StoreSums<kRows, kColumns>(to, kSide * inputs, across, inputs);
      });
    });
  }
}

void Round(const Direct& sizes, int64_t begin, int64_t end, int64_t parts, int64_t step,
           const float* sums, uint16_t* gradient) {
  const int64_t filters = sizes.shape.filters, inputs = sizes.shape.inputs;
  for (int64_t tap = 0; tap < 9; ++tap) {
    for (int64_t filter = begin * kSide; filter < end * kSide; filter += kSide) {
      for (int64_t input = 0; input < inputs; input += kSide) {
        alignas(32) uint16_t rounded[kSide * kSide], transposed[kSide * kSide];
        for (int64_t row = 0; row < kSide; ++row) {
          Lanes sum = {};
          for (int64_t part = 0; part < parts; ++part) {
            const int64_t place = (tap * filters + filter + row) * sizes.Inputs() + input;
            sum += Load(sums + part * step + place);
          }
          Store(rounded + row * kSide, sum);
        }
        Transpose(rounded, kSide, kSide, transposed, kSide);
        for (int64_t row = 0; row < std::min(kSide, inputs - input); ++row) {
          std::copy_n(transposed + row * kSide, kSide,
                      gradient + (tap * inputs + input + row) * filters + filter);
        }
      }
    }
  }
}

}  // namespace

const DirectFunctions kDirect = {
    Pack, ConvolveScratch::Size, CorrelateScratch::Size, Convolve, Correlate, Round};

}  // namespace INSTRUCTIONS
}  // namespace cifar10
