// What TensorFlow's ops share: elements' bits, the instruction set that their functions use, what
// they report when memory has run out, and the numbers that normalise channels.

#ifndef CIFAR10_KERNELS_DISPATCH_H_
#define CIFAR10_KERNELS_DISPATCH_H_

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "norm.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/threadpool.h"

namespace cifar10 {

// The elements that hold a T's bits.
template <typename T>
struct BitsOf;
template <>
struct BitsOf<float> {
  using Type = float;
};
template <>
struct BitsOf<tensorflow::bfloat16> {
  using Type = uint16_t;
};

// Instruction sets beyond AVX2, which `library.py` has seen; a CPU with one has those before it.
enum Instructions { kAvx2, kAvx512, kAvx512Bf16, kAmx };

// The most instructions that the user allows: by our own variable, whose values `library.py` has
// checked, and by oneDNN's, whose place this takes. What stands for none of these allows all.
inline Instructions Allowed() {
  constexpr const char* kNames[] = {" sse41 avx avx2 avx2_vnni avx2_vnni_2 ",
                                    " avx512 avx512_core avx512_core_vnni ",
                                    " avx512_bf16 avx512_core_bf16 avx512_core_fp16 "};
  const char *ours = std::getenv("CIFAR10_KERNELS_ISA"),
             *of_onednn = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (of_onednn == nullptr) of_onednn = std::getenv("DNNL_MAX_CPU_ISA");
  int allowed = kAmx;
  for (const char* given : {ours, of_onednn}) {
    const std::string name = given == nullptr ? "" : std::string(" ") + given + " ";
    for (int most = kAvx2; most < kAmx && !name.empty(); ++most) {
      if (strcasestr(kNames[most], name.c_str())) allowed = std::min(allowed, most);
    }
  }
  return static_cast<Instructions>(allowed);
}

// Whether this CPU has AVX-512 and may use it.
inline bool HasWideRegisters() {
  static const bool has = Allowed() >= kAvx512 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512cd") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}

// Whether it has dot products of bfloat16s and may use them.
inline bool HasBf16Dots() {
  static const bool has =
      Allowed() >= kAvx512Bf16 && HasWideRegisters() && __builtin_cpu_supports("avx512bf16");
  return has;
}

// Whether it multiplies matrices of bfloat16s (AMX) and may do so. Each thread's registers take 8
// KB more then, which a process has to ask Linux for.
inline bool HasMatrices() {
  static const bool has = [] {
    if (Allowed() < kAmx || !HasBf16Dots()) return false;
    constexpr unsigned kBfloat16 = 1u << 22, kRegisters = 1u << 24,
                       kNeeded = kBfloat16 | kRegisters;
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || (edx & kNeeded) != kNeeded)
      return false;
    constexpr long kAsk = 0x1023, kData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kAsk, kData) == 0;
  }();
  return has;
}

template <typename T>
const typename BitsOf<T>::Type* Read(const tensorflow::Tensor& tensor) {
  return reinterpret_cast<const typename BitsOf<T>::Type*>(tensor.flat<T>().data());
}

template <typename T>
typename BitsOf<T>::Type* Write(tensorflow::Tensor* tensor) {
  return reinterpret_cast<typename BitsOf<T>::Type*>(tensor->flat<T>().data());
}

// TensorFlow catches nothing, so that std::bad_alloc would abort the process.
//
// All memory is allocated before work is shared out among threads: what calls ParallelFor is
// `noexcept`, since threads would go on with what an exception had destroyed. The few bytes for
// which ParallelFor itself asks are what still aborts the process.
class Op : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) final {
    try {
      Run(context);
    } catch (const std::bad_alloc&) {
      context->CtxFailure(__FILE__, __LINE__,
                          tensorflow::errors::ResourceExhausted("OOM when allocating what ",
                                                                type_string(), " works with"));
    }
  }

 protected:
  // Computes the outputs; it may throw std::bad_alloc.
  virtual void Run(tensorflow::OpKernelContext* context) = 0;
};

// The numbers of all channels that normalise them.
class Normaliser {
 public:
  // Throws std::bad_alloc.
  Normaliser(const float* mean, const float* variance, const float* gamma, const float* beta,
             float epsilon, int64_t channels)
      : deviations_(channels),
        means_(channels),
        factors_(channels),
        offsets_(channels),
        line_{means_.data(), factors_.data(), offsets_.data()} {
    for (int64_t at = 0; at < channels; ++at) {
      deviations_[at] = Stored(std::sqrt(static_cast<double>(variance[at]) + epsilon));
      means_[at] = Stored(mean[at]);
      factors_[at] = Stored(gamma[at] / deviations_[at]);
      offsets_[at] = Stored(beta[at]);
    }
  }

  const Line& line() const { return line_; }
  double deviation(int64_t channel) const { return deviations_[channel]; }

 private:
  // The number, or for any NaN the one that `Store` in simd.h rounds to a NaN.
  template <typename Number>
  static Number Stored(Number number) {
    return std::isnan(number) ? std::numeric_limits<Number>::quiet_NaN() : number;
  }

  std::vector<double> deviations_;
  std::vector<float> means_, factors_, offsets_;
  Line line_;
};

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_DISPATCH_H_
