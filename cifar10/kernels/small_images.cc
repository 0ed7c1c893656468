// Compiled once for each instruction set, whose name INSTRUCTIONS is.

#include "small_images.h"

#include "tiles.h"

namespace cifar10 {
namespace INSTRUCTIONS {
namespace {

static_assert(kChannels % kLanes == 0 && kChannels % kRows == 0, "no channel is left over");

constexpr int64_t kPanel = kColumns * kLanes;  // columns of a panel; the last one may have fewer

int64_t PanelWidth(int64_t column, int64_t columns) {
  return std::min(kPanel, columns - column / kPanel * kPanel);
}

// The place of a vector in panels of `rows` rows.
int64_t InPanels(int64_t rows, int64_t row, int64_t column, int64_t columns) {
  const int64_t first = column / kPanel * kPanel;
  return first * rows + row * PanelWidth(column, columns) + (column - first);
}

// Evaluates a vector of channels of one image at all points, `plane` floats apart. Vectors of the
// image lie `channels` apart.
template <int side, void (*transform)(const Lanes*, Lanes*), typename Element>
INLINE void EvaluateVector(const Shape& shape, int64_t channels, const Element* image, float* to,
                           int64_t plane) {
  constexpr int kPoints = Odd<side>::kPoints;
  Lanes lines[kPoints][side];
  for (int column = 0; column < side; ++column) {
    Lanes in[side], out[kPoints];
    for (int row = 0; row < side; ++row) {
      in[row] = row < shape.height && column < shape.width
                    ? Load(image + (row * shape.width + column) * channels)
                    : Lanes{};
    }
    transform(in, out);
    for (int point = 0; point < kPoints; ++point) lines[point][column] = out[point];
  }
  for (int point = 0; point < kPoints; ++point) {
    Lanes out[kPoints];
    transform(lines[point], out);
    for (int index = 0; index < kPoints; ++index) {
      Store(to + (point * kPoints + index) * plane, out[index]);
      __builtin_prefetch(to + (point * kPoints + index) * plane + kLanes, 1);
    }
  }
}

template <int side, typename Element>
void Evaluate(const SmallImages& sizes, int64_t begin, int64_t end, const Element* images,
              float* rows) {
  const Shape& shape = sizes.shape;
  const int64_t channels = shape.inputs, size = shape.height * shape.width * channels;
  for (int64_t image = begin; image < end; ++image) {
    for (int64_t channel = 0; channel < channels; channel += kLanes) {
      EvaluateVector<side, Odd<side>::OfLine>(shape, channels, images + image * size + channel,
                                              rows + image * sizes.Step(channels) + channel,
                                              sizes.InputPlane());
    }
  }
}

template <int side, typename Element>
void EvaluateUpstream(const SmallImages& sizes, int64_t begin, int64_t end, const Element* upstream,
                      float* panels) {
  const Shape& shape = sizes.shape;
  const int64_t channels = shape.filters, size = shape.height * shape.width * channels;
  for (int64_t image = begin; image < end; ++image) {
    for (int64_t channel = 0; channel < channels; channel += kLanes) {
      EvaluateVector<side, Odd<side>::OfUpstream>(
          shape, channels, upstream + image * size + channel,
          panels + InPanels(sizes.Rows(), image, channel, channels), sizes.OutputPlane());
    }
  }
}

// Mirrors filters, and exchanges their channels: [3, 3, filters, inputs], of which the inputs from
// `begin` on are read, to [3, 3, kChannels, filters].
template <typename Element>
void Transpose(const Shape& shape, int64_t begin, const Element* weights, Element* to) {
  for (int position = 0; position < 9; ++position) {
    const Element* const from = weights + (8 - position) * shape.filters * shape.inputs + begin;
    for (int64_t filter = 0; filter < shape.filters; ++filter) {
      for (int64_t input = 0; input < kChannels; ++input) {
        to[(position * kChannels + input) * shape.filters + filter] =
            from[filter * shape.inputs + input];
      }
    }
  }
}

template <int side, typename Element>
void EvaluateFilters(const SmallImages& sizes, int64_t begin, int64_t end, const Element* weights,
                     Element* transposed, float* panels) {
  constexpr int kPoints = Odd<side>::kPoints;
  const int64_t inputs = sizes.shape.inputs, filters = sizes.shape.filters;
  for (int64_t first = begin * kChannels; first < end * kChannels; first += kChannels) {
    if (transposed) Transpose(sizes.shape, first, weights, transposed);
    const Element* const from = transposed ? transposed : weights + first * filters;
    const int64_t step = (transposed ? kChannels : inputs) * filters;
    for (int64_t at = 0; at < kChannels * filters; at += kLanes) {
      float* const to = panels + InPanels(inputs, first + at / filters, at % filters, filters);
      TransformBoth<3, kPoints, Odd<side>::OfFilter>(
          [&](int row, int column)
              INLINE_LAMBDA { return Load(from + (row * 3 + column) * step + at); },
          [&](int row, int column, Lanes out) INLINE_LAMBDA {
            float* const place = to + (row * kPoints + column) * sizes.FilterPlane();
            Store(place, out);
            __builtin_prefetch(place + kPanel, 1);
          });
    }
  }
}

// Lets the caches fetch `floats` from `from` on.
template <int kWrites>
INLINE void Prefetch(const float* from, int64_t floats) {
  for (int64_t at = 0; at < floats; at += 16) __builtin_prefetch(from + at, kWrites);
}

// Multiplies kRows rows and a panel; see `Multiply`. The error of a sum grows with the number of
// its terms, so that sums of some of them are added.
template <int columns, bool adds>
INLINE void MultiplyInParts(int64_t depth, const float* left, int64_t row_step, int64_t step,
                            const float* right, float* to, int64_t to_step) {
  constexpr int64_t kTerms = 64, kWidth = columns * kLanes;
  const int64_t first = std::min(kTerms, depth);
  Multiply<columns, adds>(first, left, row_step, step, right, kWidth, to, to_step);
  for (int64_t at = first; at < depth; at += kTerms) {
    Multiply<columns, true>(std::min(kTerms, depth - at), left + at * step, row_step, step,
                            right + at * kWidth, kWidth, to, to_step);
  }
}

// Multiplies two matrices, [rows, depth] and panels of [depth, columns]; see `Multiply`. If `rows`
// is not a multiple of kRows, some more of them are multiplied.
template <bool adds>
void MultiplyPanels(int64_t rows, int64_t depth, int64_t columns, const float* left,
                    int64_t row_step, int64_t step, const float* panels, int64_t panel_rows,
                    float* to, int64_t to_step, int64_t left_plane) {
  const int64_t blocks = (rows + kRows - 1) / kRows;
  for (int64_t column = 0; column < columns; column += kPanel) {
    const float* const right = panels + column * panel_rows;
    const float* const next = right + kPanel * panel_rows;
    const bool is_whole = column + kPanel <= columns;
    for (int64_t block = 0; block < blocks; ++block) {
      const float* const from = left + block * kRows * row_step;
      float* const into = to + block * kRows * to_step + column;
      Prefetch<0>(next + depth * kPanel * block / blocks, depth * kPanel / blocks);
      const float* const after = block + 1 < blocks ? into + kRows * to_step : to + column + kPanel;
      for (int64_t row = 0; row < kRows; ++row) Prefetch<1>(after + row * to_step, kPanel);
      const int64_t piece = left_plane * kPanel / (columns * blocks);
      Prefetch<0>(left + left_plane + (column / kPanel * blocks + block) * piece, piece);
      if (is_whole) {
        MultiplyInParts<kColumns, adds>(depth, from, row_step, step, right, into, to_step);
      } else {
        MultiplyInParts<1, adds>(depth, from, row_step, step, right, into, to_step);
      }
    }
  }
}

void MultiplyPlanes(const SmallImages& sizes, int64_t images, int64_t begin, int64_t end,
                    const float* rows, const float* filters, float* products) {
  const int64_t inputs = sizes.shape.inputs, outputs = sizes.shape.filters;
  for (int64_t plane = begin; plane < end; ++plane) {
    MultiplyPanels<false>(images, inputs, outputs, rows + plane * sizes.InputPlane(),
                          sizes.Step(inputs), 1, filters + plane * sizes.FilterPlane(), inputs,
                          products + plane * sizes.OutputPlane(), sizes.Step(outputs),
                          sizes.InputPlane());
  }
}

void CorrelatePlanes(const SmallImages& sizes, int64_t images, bool adds, int64_t begin,
                     int64_t end, const float* rows, const float* upstream, float* sums) {
  const int64_t inputs = sizes.shape.inputs, outputs = sizes.shape.filters;
  for (int64_t plane = begin; plane < end; ++plane) {
    (adds ? MultiplyPanels<true>
          : MultiplyPanels<false>)(inputs, images, outputs, rows + plane * sizes.InputPlane(), 1,
                                   sizes.Step(inputs), upstream + plane * sizes.OutputPlane(),
                                   sizes.Rows(), sums + plane * sizes.FilterPlane(), outputs,
                                   sizes.InputPlane());
  }
}

template <int side, typename Element>
void Interpolate(const SmallImages& sizes, int64_t begin, int64_t end, const float* products,
                 const Epilogue<Element>& epilogue, Element* outputs) {
  constexpr int kPoints = Odd<side>::kPoints;
  const Shape& shape = sizes.shape;
  const int64_t channels = shape.filters;
  for (int64_t image = begin; image < end; ++image) {
    for (int64_t channel = 0; channel < channels; channel += kLanes) {
      const float* const from = products + image * sizes.Step(channels) + channel;
      Element* const to = outputs + image * shape.height * shape.width * channels + channel;
      TransformBoth<kPoints, side, Odd<side>::ToOutputs>(
          [&](int row, int column) INLINE_LAMBDA {
            const float* const at = from + (row * kPoints + column) * sizes.OutputPlane();
            __builtin_prefetch(at + kLanes);
            return Load(at);
          },
          [&](int row, int column, Lanes out) INLINE_LAMBDA {
            if (column >= shape.width) return;
            Element* const at = to + (row * shape.width + column) * channels;
            Store(at, Finish(epilogue, channel, at - outputs, out));
          },
          shape.height);
    }
  }
}

template <int side, typename Element>
void InterpolateFilters(const SmallImages& sizes, int64_t begin, int64_t end, const float* sums,
                        Element* gradient) {
  constexpr int kPoints = Odd<side>::kPoints;
  const int64_t filters = sizes.shape.filters, size = sizes.shape.inputs * filters;
  for (int64_t at = begin * kChannels * filters; at < end * kChannels * filters; at += kLanes) {
    TransformBoth<kPoints, 3, Odd<side>::ToFilter>(
        [&](int row, int column) INLINE_LAMBDA {
          const float* const from = sums + (row * kPoints + column) * sizes.FilterPlane() + at;
          __builtin_prefetch(from + kLanes);
          return Load(from);
        },
        [&](int row, int column, Lanes out)
            INLINE_LAMBDA { Store(gradient + (row * 3 + column) * size + at, out); });
  }
}

template <int side, typename Element>
constexpr SmallImageFunctions<Element> kAll = {Evaluate<side, Element>,
                                               EvaluateUpstream<side, Element>,
                                               EvaluateFilters<side, Element>,
                                               MultiplyPlanes,
                                               CorrelatePlanes,
                                               Interpolate<side, Element>,
                                               InterpolateFilters<side, Element>};

}  // namespace

const SmallImageSides<float> kFloatSmallImages = {kAll<3, float>, kAll<7, float>};
const SmallImageSides<uint16_t> kBfloat16SmallImages = {kAll<3, uint16_t>, kAll<7, uint16_t>};

}  // namespace INSTRUCTIONS
}  // namespace cifar10
