// What TensorFlow's ops share: elements' bits, and the instruction set that their functions use.

#ifndef CIFAR10_KERNELS_DISPATCH_H_
#define CIFAR10_KERNELS_DISPATCH_H_

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

// Whether this CPU has AVX-512, and nobody keeps oneDNN, whose place this takes, from using it.
// If not, there is AVX2: `library.py` has seen that.
inline bool HasWideRegisters() {
  static const bool has = [] {
    const char* const most = std::getenv("ONEDNN_MAX_CPU_ISA");
    if (most != nullptr && std::string(most).rfind("AVX2", 0) == 0) return false;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  }();
  return has;
}

// Whether it also multiplies pairs of bfloat16s, likewise.
inline bool HasPairs() {
  static const bool has = [] {
    const char* const most = std::getenv("ONEDNN_MAX_CPU_ISA");
    const std::string name = most == nullptr ? "" : most;
    if (name == "AVX512_CORE" || name == "AVX512_CORE_VNNI") return false;
    return HasWideRegisters() && __builtin_cpu_supports("avx512bf16");
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
