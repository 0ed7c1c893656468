// Memory that is asked for before it is needed.

#ifndef CIFAR10_KERNELS_AHEAD_H_
#define CIFAR10_KERNELS_AHEAD_H_

#include <algorithm>
#include <cstdint>

#include "lanes.h"

namespace cifar10 {
namespace INSTRUCTIONS {

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

}  // namespace INSTRUCTIONS
}  // namespace cifar10

#endif  // CIFAR10_KERNELS_AHEAD_H_
