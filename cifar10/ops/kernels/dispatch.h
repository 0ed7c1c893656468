// What TensorFlow's ops share: elements' bits, and the instruction set that their functions use.

#ifndef CIFAR10_KERNELS_DISPATCH_H_
#define CIFAR10_KERNELS_DISPATCH_H_

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <string>

#include "tensorflow/core/framework/tensor.h"

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

// The most instructions that oneDNN, whose place this takes, may use, as the user says, in lower
// case; empty: all.
inline std::string MostInstructions() {
  const char* most = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (most == nullptr) most = std::getenv("DNNL_MAX_CPU_ISA");
  std::string name = most == nullptr ? "" : most;
  for (char& letter : name) letter = std::tolower(static_cast<unsigned char>(letter));
  return name;
}

// Whether this CPU has AVX-512 and may use it. If not, there is AVX2: `library.py` has seen that.
inline bool HasWideRegisters() {
  static const bool has = [] {
    const std::string most = MostInstructions();
    if (most == "sse41" || most == "avx" || most.rfind("avx2", 0) == 0) return false;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  }();
  return has;
}

// Whether it multiplies pairs of bfloat16s and may do so.
inline bool HasPairs() {
  static const bool has = [] {
    const std::string most = MostInstructions();
    if (most == "avx512_core" || most == "avx512_core_vnni") return false;
    return HasWideRegisters() && __builtin_cpu_supports("avx512bf16");
  }();
  return has;
}

// Whether it multiplies matrices of bfloat16s (AMX) and may do so. Each thread's registers take 8
// KB more then, which a process has to ask Linux for.
inline bool HasMatrices() {
  static const bool has = [] {
    const std::string most = MostInstructions();
    if (most == "avx512_core_bf16" || most == "avx512_core_fp16" || !HasPairs()) return false;
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

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_DISPATCH_H_
