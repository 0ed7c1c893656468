// Memory that ops work with and that is kept for the next ones: memory which is allocated anew has
// to be cleared by the kernel, page by page, and that takes as long as some of the steps.

#ifndef CIFAR10_KERNELS_WORKSPACE_H_
#define CIFAR10_KERNELS_WORKSPACE_H_

#include <sys/mman.h>

#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace cifar10 {

class Workspace {
 public:
  // Throws std::bad_alloc.
  explicit Workspace(int64_t floats) {
    const size_t size = (floats * sizeof(float) + kPage - 1) / kPage * kPage;
    {
      const std::lock_guard<std::mutex> lock(Mutex());
      if (!Unused().empty()) {
        block_ = Unused().back();
        Unused().pop_back();
      }
    }
    if (block_.size >= size) return;
    std::free(block_.memory);
    block_ = {static_cast<float*>(std::aligned_alloc(kPage, size)), size};
    if (block_.memory == nullptr) throw std::bad_alloc();
    madvise(block_.memory, size, MADV_HUGEPAGE);  // Without large pages it works, too.
  }

  ~Workspace() {
    const std::lock_guard<std::mutex> lock(Mutex());
    try {
      Unused().push_back(block_);
    } catch (const std::bad_alloc&) {
      std::free(block_.memory);
    }
  }

  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  float* memory() const { return block_.memory; }

 private:
  static constexpr size_t kPage = 2 << 20;  // bytes

  struct Block {
    float* memory;
    size_t size;
  };

  // These are never destroyed, since ops may still run while the process ends.
  static std::mutex& Mutex() {
    static auto& mutex = *new std::mutex;
    return mutex;
  }
  static std::vector<Block>& Unused() {
    static auto& blocks = *new std::vector<Block>;
    return blocks;
  }

  Block block_ = {nullptr, 0};
};

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_WORKSPACE_H_
