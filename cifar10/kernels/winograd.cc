// Compiled once for each instruction set, whose name INSTRUCTIONS is.

#include "winograd.h"

#include <algorithm>

#include "tiles.h"

namespace cifar10 {
namespace INSTRUCTIONS {
namespace {

static_assert(kChannels % kLanes == 0 && kInputs % kRows == 0, "no channel is left over");

// What is computed with tiles of kTile x kTile outputs, and products of such operands.
template <int kTile, typename Operand>
struct Tiles {
  // Inputs of a tile along an axis, and points of evaluation; those of both axes.
  static constexpr int kPoints = kTile + 2, kPlanes = kPoints * kPoints;

  // Tiles of so many rows, and what is computed for them at least.
  static int64_t TilesOf(const Shape& shape, int64_t rows) {
    const int64_t tiles = rows * shape.Across();
    return (tiles + kRows - 1) / kRows * kRows;
  }

  // What a call is given to work with.
  struct Scratch {
    Scratch(const Shape& shape, float* memory)
        : tiles(TilesOf(shape, shape.RowsTogether())),
          inputs(reinterpret_cast<Operand*>(memory)),
          outputs(memory + kPlanes * tiles * shape.inputs),
          upstream(reinterpret_cast<Operand*>(outputs)),
          lines(outputs + kPlanes * tiles * shape.filters),
          zeros(lines + kPoints * LineSize(shape)) {
      std::fill_n(zeros, LineSize(shape), 0.0f);
    }

    static int64_t Size(const Shape& shape) {
      const int64_t tiles = TilesOf(shape, shape.RowsTogether());
      return kPlanes * tiles * (shape.inputs + shape.filters) + (kPoints + 1) * LineSize(shape);
    }

    // What a row of tiles sees of a line, at most.
    static int64_t LineSize(const Shape& shape) {
      return (shape.Across() * kTile + 2) * std::max(shape.inputs, shape.filters);
    }

    const int64_t tiles;      // that there is room for
    Operand* const inputs;    // [points, points, tiles, inputs], images that are evaluated
    float* const outputs;     // [points, points, tiles, filters], not interpolated yet
    Operand* const upstream;  // likewise, gradients of outputs that are evaluated, in their place
    float* const lines;       // [points, tiles across * kTile + 2, channels], one axis done
    float* const zeros;       // a line
  };

  // The first line of a row of tiles, of images with so many channels.
  template <typename Element>
  static Element* LinesOf(const Shape& shape, Element* images, int64_t channels, int64_t row) {
    const int64_t line = row / shape.Down() * shape.height + row % shape.Down() * kTile;
    return images + line * shape.width * channels;
  }

  // What the caches are asked for in pieces, while products are computed: if they were asked for
  // all of it at once, the core would wait for memory.
  class Ahead {
   public:
    INLINE Ahead(const void* first, const void* last, int64_t pieces)
        : next_(static_cast<const char*>(first)),
          last_(static_cast<const char*>(last)),
          piece_((last_ - next_) / pieces + kLine) {}

    INLINE void FetchPiece() {
      const int64_t count = std::min(piece_, last_ - next_);
      for (int64_t at = 0; at < count; at += kLine) __builtin_prefetch(next_ + at);
      next_ += count;
    }

   private:
    static constexpr int64_t kLine = 64;  // bytes of a line of the caches
    const char* next_;
    const char* const last_;
    const int64_t piece_;
  };

  // The point from which on the caches are asked for what the next rows of tiles need. Later it
  // would not arrive in time; earlier the filters of the points in between would displace it.
  static int64_t FirstAhead(int64_t size) {
    constexpr int64_t kFloats = 1 << 16;  // 256 KiB: a quarter of a Zen 4's second cache
    return kPlanes - std::clamp<int64_t>(kFloats / size, 1, kPlanes);
  }

  // Whether filters, or their sums, come from so far that the caches are asked for them, too.
  static bool AreFar(int64_t size) {
    constexpr int64_t kFloats = 1 << 20;
    return kPlanes * size > kFloats;
  }

  // Lines of an image from `top` on, those that it does not have as zeros.
  template <int kCount, typename Element>
  static INLINE void FindLines(const Shape& shape, int64_t channels, const Element* image,
                               int64_t top, const Scratch& scratch, const Element* lines[kCount]) {
    for (int index = 0; index < kCount; ++index) {
      const int64_t at = top + index;
      lines[index] = at >= 0 && at < shape.height ? image + at * shape.width * channels
                                                  : reinterpret_cast<const Element*>(scratch.zeros);
    }
  }

  // Where the vector at `next` of `all` numbers begins: the last one, which they may not fill, has
  // some numbers of the one before, which are computed twice.
  static INLINE int64_t Whole(int64_t next, int64_t all) { return std::min(next, all - kLanes); }

  // Transforms all channels: reads kIn vectors `in_step` apart, calls put(index, channel, vector)
  // for kOut.
  template <int kIn, int kOut, void (*transform)(const Lanes*, Lanes*), typename Put>
  static INLINE void Transform(int64_t channels, const float* from, int64_t in_step,
                               const Put& put) {
    for (int64_t next = 0; next < channels; next += kLanes) {
      const int64_t channel = Whole(next, channels);
      Lanes in[kIn], out[kOut];
      for (int index = 0; index < kIn; ++index) in[index] = Load(from + index * in_step + channel);
      transform(in, out);
      for (int index = 0; index < kOut; ++index) put(index, channel, out[index]);
    }
  }

  // Evaluates `rows` rows of tiles from `begin` on, of images with so many channels, by
  // `transform`: inputs, of which a tile sees one line more than it has outputs on each side, or
  // the gradients of outputs.
  template <int kIn, void (*transform)(const Lanes*, Lanes*), Neighbours neighbours,
            typename Element>
  static INLINE void EvaluateTiles(const Shape& shape, int64_t channels, int64_t begin,
                                   int64_t rows, const Element* images, const Scratch& scratch,
                                   Operand* evaluated) {
    constexpr int64_t kBorder = (kIn - kTile) / 2;
    const int64_t line = shape.width * channels, border = kBorder * channels;
    const int64_t across = shape.Across(), down = shape.Down();
    const int64_t padded = across * kTile * channels + 2 * border;
    for (int point = 0; point < kPoints; ++point) {
      float* const to = scratch.lines + point * padded;
      std::fill_n(to, border, 0.0f);
      std::fill(to + border + line, to + padded, 0.0f);
    }
    for (int64_t row = 0; row < rows; ++row) {
      const Element* const image = images + (begin + row) / down * shape.height * line;
      const int64_t top = (begin + row) % down * kTile;
      const Element* from[kIn];
      FindLines<kIn>(shape, channels, image, top - kBorder, scratch, from);
      for (int64_t next = 0; next < line; next += kLanes) {
        const int64_t at = Whole(next, line);
        Lanes in[kIn], out[kPoints];
        for (int index = 0; index < kIn; ++index) in[index] = Load(from[index] + at);
        transform(in, out);
        for (int point = 0; point < kPoints; ++point) {
          Store(scratch.lines + point * padded + border + at, out[point]);
        }
      }
      for (int point = 0; point < kPoints; ++point) {
        for (int64_t tile = 0; tile < across; ++tile) {
          const float* const from = scratch.lines + point * padded + tile * kTile * channels;
          const Place<Operand, neighbours> place(
              evaluated, point * kPoints * scratch.tiles + row * across + tile, channels);
          Transform<kIn, kPoints, transform>(
              channels, from, channels, [&](int index, int64_t channel, Lanes out) INLINE_LAMBDA {
                place.Put(index * scratch.tiles, channel, out);
              });
        }
      }
    }
  }

  template <Neighbours neighbours, typename Element>
  static INLINE void EvaluateInputs(const Shape& shape, int64_t begin, int64_t rows,
                                    const Element* images, const Scratch& scratch) {
    EvaluateTiles<kPoints, Tile<kTile>::OfInputs, neighbours>(shape, shape.inputs, begin, rows,
                                                              images, scratch, scratch.inputs);
  }

  // Interpolates the outputs of `rows` rows of tiles from `begin` on.
  template <typename Element>
  static INLINE void InterpolateOutputs(const Shape& shape, int64_t begin, int64_t rows,
                                        const Scratch& scratch, Epilogue<Element> epilogue,
                                        Element* outputs) {
    const int64_t channels = shape.filters, line = shape.width * channels;
    const int64_t across = shape.Across(), down = shape.Down();
    const int64_t step = scratch.tiles * channels;
    const int64_t padded = across * kTile * channels;
    for (int64_t row = 0; row < rows; ++row) {
      for (int point = 0; point < kPoints; ++point) {
        for (int64_t tile = 0; tile < across; ++tile) {
          const float* const from =
              scratch.outputs + (point * kPoints * scratch.tiles + row * across + tile) * channels;
          float* const to = scratch.lines + point * padded + tile * kTile * channels;
          Transform<kPoints, kTile, Tile<kTile>::ToOutputs>(
              channels, from, step, [&](int index, int64_t channel, Lanes out) INLINE_LAMBDA {
                Store(to + index * channels + channel, out);
              });
        }
      }
      const int64_t image = (begin + row) / down, top = (begin + row) % down * kTile;
      const int64_t lines = std::min<int64_t>(kTile, shape.height - top);
      Element* const first = outputs + (image * shape.height + top) * line;
      for (int64_t at = 0; at < line; at += kLanes) {
        Lanes in[kPoints], out[kTile];
        for (int point = 0; point < kPoints; ++point) {
          in[point] = Load(scratch.lines + point * padded + at);
        }
        Tile<kTile>::ToOutputs(in, out);
        for (int64_t index = 0; index < lines; ++index) {
          Element* const to = first + index * line + at;
          Store(to, Finish(epilogue, at % channels, to - outputs, out[index]));
        }
      }
    }
  }

  // Multiplies kRows rows and all columns, `width` of them; see `Multiply`.
  template <bool adds>
  static INLINE void MultiplyRows(int64_t depth, const Operand* left, int64_t row_step,
                                  int64_t step, const Operand* right, int64_t width, float* to) {
    int64_t at = 0;
    for (; at + kColumns * kLanes <= width; at += kColumns * kLanes) {
      Multiply<kColumns, adds>(depth, left, row_step, step, right + at, width, to + at, width);
    }
    if (at < width)
      Multiply<1, adds>(depth, left, row_step, step, right + at, width, to + at, width);
  }

  template <typename Element>
  static void Convolve(const Shape& shape, int64_t begin, int64_t end, const Element* images,
                       const float* evaluated, const Epilogue<Element>& epilogue, Element* outputs,
                       float* memory) {
    const Scratch scratch(shape, memory);
    const int64_t together = shape.RowsTogether(), inputs = shape.inputs, filters = shape.filters;
    const int64_t depth = inputs / Numbers<Operand>::kCount, size = depth * filters;
    const Operand* const operands = reinterpret_cast<const Operand*>(evaluated);
    const int64_t first_ahead = FirstAhead(size);
    const bool are_far = AreFar(size);
    for (int64_t row = begin; row < end; row += together) {
      const int64_t rows = std::min(together, end - row), tiles = TilesOf(shape, rows);
      const int64_t next = row + rows, after = std::min(next + together, end);
      EvaluateInputs<Neighbours::kChannels>(shape, row, rows, images, scratch);
      Ahead to_read(LinesOf(shape, images, inputs, next), LinesOf(shape, images, inputs, after),
                    kPlanes - first_ahead);
      Ahead to_write(LinesOf(shape, outputs, filters, row), LinesOf(shape, outputs, filters, next),
                     kPlanes - first_ahead);
      for (int point = 0; point < kPlanes; ++point) {
        if (point >= first_ahead) {
          to_read.FetchPiece();
          to_write.FetchPiece();
        }
        const Operand* const right = operands + point * size;
        Ahead far(right + size, operands + std::min(point + 2, kPlanes) * size, tiles / kRows);
        for (int64_t tile = 0; tile < tiles; tile += kRows) {
          if (are_far) far.FetchPiece();
          const int64_t from = point * scratch.tiles + tile;
          MultiplyRows<false>(depth, scratch.inputs + from * depth, depth, 1, right, filters,
                              scratch.outputs + from * filters);
        }
      }
      InterpolateOutputs(shape, row, rows, scratch, epilogue, outputs);
    }
  }

  template <typename Element>
  static void Correlate(const Shape& shape, int64_t begin, int64_t end, const Element* images,
                        const Element* upstream, float* sums, float* memory) {
    const Scratch scratch(shape, memory);
    const int64_t together = shape.RowsTogether(), inputs = shape.inputs, filters = shape.filters;
    const int64_t size = inputs * filters, first_ahead = FirstAhead(size);
    const bool are_far = AreFar(size);
    for (int64_t row = begin; row < end; row += together) {
      const int64_t rows = std::min(together, end - row), tiles = rows * shape.Across();
      const int64_t depth = (tiles + Numbers<Operand>::kCount - 1) / Numbers<Operand>::kCount;
      const int64_t next = row + rows, after = std::min(next + together, end);
      EvaluateInputs<Neighbours::kRows>(shape, row, rows, images, scratch);
      EvaluateTiles<kTile, Tile<kTile>::OfUpstream, Neighbours::kRows>(
          shape, filters, row, rows, upstream, scratch, scratch.upstream);
      Ahead of_images(LinesOf(shape, images, inputs, next), LinesOf(shape, images, inputs, after),
                      kPlanes - first_ahead);
      Ahead of_upstream(LinesOf(shape, upstream, filters, next),
                        LinesOf(shape, upstream, filters, after), kPlanes - first_ahead);
      for (int point = 0; point < kPlanes; ++point) {
        if (point >= first_ahead) {
          of_images.FetchPiece();
          of_upstream.FetchPiece();
        }
        const int64_t from = point * scratch.tiles / Numbers<Operand>::kCount;
        const Operand* const left = scratch.inputs + from * inputs;
        const Operand* const right = scratch.upstream + from * filters;
        float* const to = sums + point * size;
        Ahead far(to + size, sums + std::min(point + 2, kPlanes) * size, inputs / kRows);
        for (int64_t input = 0; input < inputs; input += kRows) {
          if (are_far) far.FetchPiece();
          MultiplyRows<true>(depth, left + input, 1, inputs, right, filters, to + input * filters);
        }
      }
    }
  }

  template <typename Element>
  static void Evaluate(const Shape& shape, int64_t begin, int64_t end, const Element* weights,
                       float* evaluated) {
    constexpr int kTogether = Numbers<Operand>::kCount;
    const int64_t filters = shape.filters, size = shape.inputs * filters;
    Operand* const operands = reinterpret_cast<Operand*>(evaluated);
    for (int64_t input = begin * kInputs; input < end * kInputs; input += kTogether) {
      for (int64_t filter = 0; filter < filters; filter += kLanes) {
        Lanes out[kTogether][kPlanes];
        for (int index = 0; index < kTogether; ++index) {
          const Element* const from = weights + (input + index) * filters + filter;
          TransformBoth<3, kPoints, Tile<kTile>::OfFilter>(
              [&](int row, int column)
                  INLINE_LAMBDA { return Load(from + (row * 3 + column) * size); },
              [&](int row, int column, Lanes point)
                  INLINE_LAMBDA { out[index][row * kPoints + column] = point; });
        }
        Operand* const to = operands + input / kTogether * filters + filter;
        for (int plane = 0; plane < kPlanes; ++plane) {
          Lanes numbers[kTogether];
          for (int index = 0; index < kTogether; ++index) numbers[index] = out[index][plane];
          StoreOperands(to + plane * (size / kTogether), numbers);
        }
      }
    }
  }

  template <typename Element>
  static void Interpolate(const Shape& shape, int64_t begin, int64_t end, const float* sums,
                          Element* gradient) {
    const int64_t size = shape.inputs * shape.filters, each = kInputs * shape.filters;
    for (int64_t at = begin * each; at < end * each; at += kLanes) {
      TransformBoth<kPoints, 3, Tile<kTile>::ToFilter>(
          [&](int row, int column)
              INLINE_LAMBDA { return Load(sums + (row * kPoints + column) * size + at); },
          [&](int row, int column, Lanes out)
              INLINE_LAMBDA { Store(gradient + (row * 3 + column) * size + at, out); });
    }
  }
};

template <int tile, typename Operand, typename Element>
constexpr Functions<Element> kAll = {tile,
                                     Tiles<tile, Operand>::Scratch::Size,
                                     Tiles<tile, Operand>::template Convolve<Element>,
                                     Tiles<tile, Operand>::template Correlate<Element>,
                                     Tiles<tile, Operand>::template Evaluate<Element>,
                                     Tiles<tile, Operand>::template Interpolate<Element>};

}  // namespace

#ifdef __AVX512BF16__
const TileFunctions<uint16_t> kPairs = {kAll<3, Pair, uint16_t>, kAll<4, Pair, uint16_t>};
#else
const TileFunctions<float> kFloat = {kAll<4, float, float>, kAll<5, float, float>};
const TileFunctions<uint16_t> kBfloat16 = {kAll<4, float, uint16_t>, kAll<5, float, uint16_t>};
#endif

}  // namespace INSTRUCTIONS
}  // namespace cifar10
