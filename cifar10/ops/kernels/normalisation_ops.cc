// TensorFlow's ops around normalisation.h, for CPUs.

#include <algorithm>
#include <vector>

#include "dispatch.h"
#include "op.h"
#include "row_blocks.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

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
