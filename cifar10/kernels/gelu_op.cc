// GELU and its gradient, number by number: TensorFlow's ops, and functions that are compiled once
// for each instruction set, whose name INSTRUCTIONS is. Elements are float, or uint16_t for the
// bits of a bfloat16; all is computed in float.

#include <algorithm>
#include <cstdint>

namespace cifar10 {

// Functions of one element type, compiled for one instruction set. An output may lie where an input
// does.
template <typename Element>
struct Activations {
  // x (1 + tanh(sqrt(2 / pi) (x + .044715 x^3))) / 2 (arXiv:1606.08415, section 2).
  void (*gelu)(int64_t count, const Element* x, Element* y);
  void (*gelu_gradient)(int64_t count, const Element* x, const Element* upstream,
                        Element* gradient);
};

namespace avx512 {
extern const Activations<float> kFloatActivations;
extern const Activations<uint16_t> kBfloat16Activations;
}  // namespace avx512

namespace avx2 {
extern const Activations<float> kFloatActivations;
extern const Activations<uint16_t> kBfloat16Activations;
}  // namespace avx2

}  // namespace cifar10

#ifdef INSTRUCTIONS

#include "simd.h"

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

// Stores function(vectors at a place of each of `from`) for all numbers. What does not fill a
// vector at the end goes through copies.
template <typename Element, typename Function, typename... From>
INLINE void ForAll(int64_t count, Element* to, const Function& function, const From*... from) {
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) Store(to + at, function(Load(from + at)...));
  if (at == count) return;
  const auto last = [&](const Element* numbers) INLINE_LAMBDA {
    Element copy[kLanes] = {};
    std::copy(numbers + at, numbers + count, copy);
    return Load(copy);
  };
  Element done[kLanes];
  Store(done, function(last(from)...));
  std::copy(done, done + (count - at), to + at);
}

template <typename Element>
void Gelu(int64_t count, const Element* x, Element* to) {
  ForAll(count, to, [](Lanes x) INLINE_LAMBDA { return Value(x); }, x);
}

template <typename Element>
void GeluGradient(int64_t count, const Element* x, const Element* upstream, Element* to) {
  ForAll(
      count, to, [](Lanes x, Lanes above) INLINE_LAMBDA { return Slope(x, above); }, x, upstream);
}

template <typename Element>
constexpr Activations<Element> kAll = {Gelu<Element>, GeluGradient<Element>};

}  // namespace

const Activations<float> kFloatActivations = kAll<float>;
const Activations<uint16_t> kBfloat16Activations = kAll<uint16_t>;

}  // namespace INSTRUCTIONS
}  // namespace cifar10

#else

#include "dispatch.h"
#include "tensorflow/core/framework/common_shape_fns.h"

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

#endif
