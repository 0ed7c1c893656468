// TensorFlow's ops around activations.h, for CPUs.

#include "activations.h"
#include "dispatch.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/threadpool.h"

namespace cifar10 {
namespace {

using tensorflow::bfloat16;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

REGISTER_OP("Cifar10Gelu")
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {float, bfloat16}")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

REGISTER_OP("Cifar10GeluGrad")
    .Input("x: T")
    .Input("upstream: T")
    .Output("gradient: T")
    .Attr("T: {float, bfloat16}")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

const Activations<float>& FunctionsOf(float) {
  return HasWideRegisters() ? avx512::kFloatActivations : avx2::kFloatActivations;
}

const Activations<uint16_t>& FunctionsOf(uint16_t) {
  return HasWideRegisters() ? avx512::kBfloat16Activations : avx2::kBfloat16Activations;
}

// Calls function(begin, count) for parts of all numbers.
template <typename Function>
void Share(OpKernelContext* context, int64_t all, const Function& function) {
  constexpr int64_t kCycles = 2;  // for each number
  context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(
      all, kCycles, [&](int64_t begin, int64_t end) { function(begin, end - begin); });
}

template <typename T>
class Gelu : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    using Bits = typename BitsOf<T>::Type;
    const Tensor& x = context->input(0);
    Tensor* y;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, x.shape(), &y));
    const Bits* const from = Read<T>(x);
    Bits* const to = Write<T>(y);
    const auto function = FunctionsOf(Bits()).gelu;
    Share(context, x.NumElements(),
          [&](int64_t begin, int64_t count) { function(count, from + begin, to + begin); });
  }
};

template <typename T>
class GeluGradient : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    using Bits = typename BitsOf<T>::Type;
    const Tensor &x = context->input(0), &upstream = context->input(1);
    OP_REQUIRES(context, x.shape() == upstream.shape(),
                InvalidArgument("upstream has the shape ", upstream.shape().DebugString(), ", not ",
                                x.shape().DebugString()));
    Tensor* gradient;
    OP_REQUIRES_OK(context,
                   context->forward_input_or_allocate_output({1, 0}, 0, x.shape(), &gradient));
    const Bits *const from = Read<T>(x), *const above = Read<T>(upstream);
    Bits* const to = Write<T>(gradient);
    const auto function = FunctionsOf(Bits()).gelu_gradient;
    Share(context, x.NumElements(), [&](int64_t begin, int64_t count) {
      function(count, from + begin, above + begin, to + begin);
    });
  }
};

#define REGISTER(Type)                                                                           \
  REGISTER_KERNEL_BUILDER(                                                                       \
      Name("Cifar10Gelu").Device(tensorflow::DEVICE_CPU).TypeConstraint<Type>("T"), Gelu<Type>); \
  REGISTER_KERNEL_BUILDER(                                                                       \
      Name("Cifar10GeluGrad").Device(tensorflow::DEVICE_CPU).TypeConstraint<Type>("T"),          \
      GeluGradient<Type>)

REGISTER(float);
REGISTER(bfloat16);

}  // namespace
}  // namespace cifar10
