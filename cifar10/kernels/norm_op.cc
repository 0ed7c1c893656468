// Batch normalisation with ReLU: TensorFlow's ops, and the functions of norm.h, which are compiled
// once for each instruction set, whose name INSTRUCTIONS is.

#include <algorithm>

#include "norm.h"

#ifdef INSTRUCTIONS

#include <type_traits>

#include "simd.h"

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

#else

#include "dispatch.h"

namespace cifar10 {
namespace {

using tensorflow::bfloat16;
using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;
using tensorflow::shape_inference::InferenceContext;

constexpr int64_t kRowsOfShift = 16;

// The numbers that are summed in float32; the sums of such blocks are added in float64, in their
// order, whichever threads compute them.
constexpr int64_t kBlock = 16384;

// Rows of numbers in blocks; two sums for each block and channel, and both over all blocks. There
// may be none of them.
class RowBlocks {
 public:
  // Throws std::bad_alloc.
  tensorflow::Status Make(const tensorflow::TensorShape& shape) {
    channels_ = shape.dims() > 0 ? shape.dim_size(shape.dims() - 1) : 0;
    if (channels_ <= 0 || channels_ % kChannels != 0) {
      return tensorflow::errors::InvalidArgument("x has channels in multiples of ", kChannels,
                                                 " and is not of shape ", shape.DebugString());
    }
    rows_ = shape.num_elements() / channels_;
    each_ = std::max<int64_t>(1, kBlock / channels_);
    sums_.resize(2 * Count() * channels_);
    return tensorflow::OkStatus();
  }

  int64_t channels() const { return channels_; }
  int64_t rows() const { return rows_; }
  int64_t Count() const { return (rows_ + each_ - 1) / each_; }
  int64_t RowsOf(int64_t block) const { return std::min(each_, rows_ - block * each_); }
  float* First(int64_t block) { return sums_.data() + 2 * block * channels_; }
  float* Second(int64_t block) { return First(block) + channels_; }

  // One of the sums over all blocks.
  double All(const float* of_first) const {
    double sum = 0.0;
    for (int64_t block = 0; block < Count(); ++block) sum += of_first[2 * block * channels_];
    return sum;
  }

  // Calls function(block, place of its first number, rows) for all blocks.
  template <typename Function>
  void Run(tensorflow::OpKernelContext* context, const Function& function) noexcept {
    context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(
        Count(), each_ * channels_, [&](int64_t begin, int64_t end) {
          for (int64_t block = begin; block < end; ++block) {
            function(block, block * each_ * channels_, RowsOf(block));
          }
        });
  }

 private:
  int64_t channels_ = 0, rows_ = 0, each_ = 0;
  std::vector<float> sums_;
};

REGISTER_OP("Cifar10NormRelu")
    .Input("x: T")
    .Input("gamma: float")
    .Input("beta: float")
    .Input("shortcut: shortcuts * T")
    .Output("y: T")
    .Output("mean: float")
    .Output("variance: float")
    .Attr("T: {float, bfloat16}")
    .Attr("shortcuts: int >= 0")
    .Attr("epsilon: float")
    .Doc(
        "ReLU(batch normalisation of x + shortcut, if there is one); the variance is a "
        "population's.")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(0));
      c->set_output(1, c->input(1));
      c->set_output(2, c->input(1));
      return tensorflow::OkStatus();
    });

REGISTER_OP("Cifar10NormReluGrad")
    .Input("x: T")
    .Input("gamma: float")
    .Input("beta: float")
    .Input("mean: float")
    .Input("variance: float")
    .Input("upstream: T")
    .Input("y: shortcuts * T")
    .Output("of_x: T")
    .Output("of_gamma: float")
    .Output("of_beta: float")
    .Output("of_shortcut: shortcuts * T")
    .Attr("T: {float, bfloat16}")
    .Attr("shortcuts: int >= 0")
    .Attr("epsilon: float")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(0));
      c->set_output(1, c->input(1));
      c->set_output(2, c->input(1));
      if (c->num_outputs() > 3) c->set_output(3, c->input(0));
      return tensorflow::OkStatus();
    });

const Normalisation<float>& FunctionsOf(float) {
  return HasWideRegisters() ? avx512::kFloatNormalisation : avx2::kFloatNormalisation;
}

const Normalisation<uint16_t>& FunctionsOf(uint16_t) {
  return HasWideRegisters() ? avx512::kBfloat16Normalisation : avx2::kBfloat16Normalisation;
}

Status CheckChannels(OpKernelContext* context, int64_t channels, int first, int last) {
  for (int index = first; index <= last; ++index) {
    if (context->input(index).shape() != TensorShape({channels})) {
      return InvalidArgument("a channel's numbers have the shape ",
                             context->input(index).shape().DebugString(), ", not [", channels, "]");
    }
  }
  return tensorflow::OkStatus();
}

// About the mean: that of some rows. Where sums are those of deviations from it, little cancels.
template <typename T>
std::vector<float> Shift(const RowBlocks& blocks, const Tensor& x) {
  const int64_t channels = blocks.channels(), count = std::min(blocks.rows(), kRowsOfShift);
  const T* const from = x.flat<T>().data();
  std::vector<float> shift(channels);
  for (int64_t index = 0; index < count; ++index) {
    const T* const row = from + blocks.rows() * index / count * channels;
    for (int64_t at = 0; at < channels; ++at) shift[at] += static_cast<float>(row[at]) / count;
  }
  return shift;
}

template <typename T>
class NormRelu : public Op {
 public:
  explicit NormRelu(OpKernelConstruction* context) : Op(context) {
    OP_REQUIRES_OK(context, context->GetAttr("epsilon", &epsilon_));
  }

  void Run(OpKernelContext* context) override {
    using Bits = typename BitsOf<T>::Type;
    const Tensor& x = context->input(0);
    RowBlocks blocks;
    OP_REQUIRES_OK(context, blocks.Make(x.shape()));
    const int64_t channels = blocks.channels();
    OP_REQUIRES_OK(context, CheckChannels(context, channels, 1, 2));
    OpInputList shortcuts;
    OP_REQUIRES_OK(context, context->input_list("shortcut", &shortcuts));
    const Bits* shortcut = nullptr;
    if (shortcuts.size() > 0) {
      OP_REQUIRES(context, shortcuts.size() == 1 && shortcuts[0].shape() == x.shape(),
                  InvalidArgument("one shortcut of the shape ", x.shape().DebugString()));
      shortcut = Read<T>(shortcuts[0]);
    }
    Tensor *y, *mean, *variance;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    OP_REQUIRES_OK(context, context->allocate_output(1, {channels}, &mean));
    OP_REQUIRES_OK(context, context->allocate_output(2, {channels}, &variance));
    const auto& functions = FunctionsOf(Bits());
    const Bits* const from = Read<T>(x);
    const std::vector<float> shift = Shift<T>(blocks, x);
    blocks.Run(context, [&](int64_t block, int64_t place, int64_t rows) {
      functions.moments(rows, channels, from + place, shift.data(), blocks.First(block),
                        blocks.Second(block));
    });
    for (int64_t at = 0; at < channels; ++at) {
      const double shifted = blocks.All(blocks.First(0) + at) / blocks.rows();
      const double square = blocks.All(blocks.Second(0) + at) / blocks.rows();
      Write<float>(mean)[at] = shift[at] + shifted;
      Write<float>(variance)[at] = std::max(square - shifted * shifted, 0.0);
    }
    const Normaliser normaliser(Read<float>(*mean), Read<float>(*variance),
                                Read<float>(context->input(1)), Read<float>(context->input(2)),
                                epsilon_, channels);
    Bits* const to = Write<T>(y);
    blocks.Run(context, [&](int64_t block, int64_t place, int64_t rows) {
      functions.apply(rows, channels, from + place, shortcut ? shortcut + place : nullptr,
                      normaliser.line(), to + place);
    });
  }

 private:
  float epsilon_;
};

template <typename T>
class NormReluGrad : public Op {
 public:
  explicit NormReluGrad(OpKernelConstruction* context) : Op(context) {
    OP_REQUIRES_OK(context, context->GetAttr("epsilon", &epsilon_));
  }

  void Run(OpKernelContext* context) override {
    using Bits = typename BitsOf<T>::Type;
    const Tensor &x = context->input(0), &upstream = context->input(5);
    RowBlocks blocks;
    OP_REQUIRES_OK(context, blocks.Make(x.shape()));
    const int64_t channels = blocks.channels();
    OP_REQUIRES_OK(context, CheckChannels(context, channels, 1, 4));
    OP_REQUIRES(context, upstream.shape() == x.shape(),
                InvalidArgument("upstream has the shape ", upstream.shape().DebugString(), ", not ",
                                x.shape().DebugString()));
    OpInputList outputs;
    OP_REQUIRES_OK(context, context->input_list("y", &outputs));
    OpOutputList of_shortcuts;
    OP_REQUIRES_OK(context, context->output_list("of_shortcut", &of_shortcuts));
    const bool has_shortcut = outputs.size() > 0;
    const Bits *y = nullptr, *above = Read<T>(upstream);
    Bits* behind = nullptr;
    if (has_shortcut) {
      OP_REQUIRES(context, outputs.size() == 1 && outputs[0].shape() == x.shape(),
                  InvalidArgument("one y of the shape ", x.shape().DebugString()));
      y = Read<T>(outputs[0]);
      Tensor* of_shortcut;
      OP_REQUIRES_OK(context,
                     context->forward_input_or_allocate_output({5}, 3, x.shape(), &of_shortcut));
      behind = Write<T>(of_shortcut);
    }
    const Normaliser normaliser(Read<float>(context->input(3)), Read<float>(context->input(4)),
                                Read<float>(context->input(1)), Read<float>(context->input(2)),
                                epsilon_, channels);
    const auto& functions = FunctionsOf(Bits());
    const Bits* const from = Read<T>(x);
    blocks.Run(context, [&](int64_t block, int64_t place, int64_t rows) {
      functions.sums(rows, channels, from + place, y ? y + place : nullptr, above + place,
                     normaliser.line(), blocks.First(block), blocks.Second(block),
                     behind ? behind + place : nullptr);
    });
    Tensor *of_x, *of_gamma, *of_beta;
    OP_REQUIRES_OK(context, context->allocate_output(1, {channels}, &of_gamma));
    OP_REQUIRES_OK(context, context->allocate_output(2, {channels}, &of_beta));
    std::vector<float> means(channels), slopes(channels);
    for (int64_t at = 0; at < channels; ++at) {
      const double sum = blocks.All(blocks.First(0) + at);
      const double product = blocks.All(blocks.Second(0) + at);
      const double deviation = normaliser.deviation(at);
      // Without rows, the statistics are NaN, as TensorFlow's are, but these gradients 0.
      Write<float>(of_gamma)[at] = blocks.rows() == 0 ? 0.0 : product / deviation;
      Write<float>(of_beta)[at] = sum;
      means[at] = sum / blocks.rows();
      slopes[at] = product / (deviation * deviation * blocks.rows());
    }
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, x.shape(), &of_x));
    Bits* const to = Write<T>(of_x);
    const Bits* const masked = has_shortcut ? behind : above;
    blocks.Run(context, [&](int64_t block, int64_t place, int64_t rows) {
      functions.gradient(rows, channels, from + place, masked + place, has_shortcut,
                         normaliser.line(), means.data(), slopes.data(), to + place);
    });
  }

 private:
  float epsilon_;
};

#define REGISTER(Type)                                                                      \
  REGISTER_KERNEL_BUILDER(                                                                  \
      Name("Cifar10NormRelu").Device(tensorflow::DEVICE_CPU).TypeConstraint<Type>("T"),     \
      NormRelu<Type>);                                                                      \
  REGISTER_KERNEL_BUILDER(                                                                  \
      Name("Cifar10NormReluGrad").Device(tensorflow::DEVICE_CPU).TypeConstraint<Type>("T"), \
      NormReluGrad<Type>)

REGISTER(float);
REGISTER(bfloat16);

}  // namespace
}  // namespace cifar10

#endif
