// What a convolution does with its outputs before it stores them.

#ifndef CIFAR10_KERNELS_EPILOGUE_H_
#define CIFAR10_KERNELS_EPILOGUE_H_

#include "lanes.h"
#include "normalisation.h"

namespace cifar10 {
namespace INSTRUCTIONS {

// Returns what is stored at `place`, the outputs of some channels from `channel` on.
template <typename Element>
INLINE Lanes Finish(const Epilogue<Element>& epilogue, int64_t channel, int64_t place, Lanes out) {
  const Line& line = epilogue.line;
  if (line.factor == nullptr) return out;
  out = (out - Load(line.mean + channel)) * Load(line.factor + channel);
  out += Load(line.offset + channel);
  if (epilogue.shortcut != nullptr) out += Load(epilogue.shortcut + place);
  return Relu(out);
}

}  // namespace INSTRUCTIONS
}  // namespace cifar10

#endif  // CIFAR10_KERNELS_EPILOGUE_H_
