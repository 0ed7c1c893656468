// The steps of direct.h, one after the other, each shared out among TensorFlow's threads.

#ifndef CIFAR10_KERNELS_DIRECT_STEPS_H_
#define CIFAR10_KERNELS_DIRECT_STEPS_H_

#include <algorithm>

#include "direct.h"
#include "tensorflow/core/platform/threadpool.h"
#include "workspace.h"

namespace cifar10 {

class DirectSteps {
 public:
  DirectSteps(tensorflow::thread::ThreadPool* pool, const Shape& shape)
      : pool_(pool), sizes_{shape}, functions_(amx::kDirect) {}

  // The convolution of images and weights; see `pack`. Throws std::bad_alloc.
  void Convolve(const uint16_t* images, bool transposes, const uint16_t* weights,
                const Epilogue<uint16_t>& epilogue, uint16_t* outputs) const {
    const int64_t of_filters = InFloats(sizes_.Packed());
    const int64_t of_thread = Aligned(functions_.convolve_scratch(sizes_));
    // Memory for each thread of the pool, and for this one.
    const Workspace work(of_filters + (pool_->NumThreads() + 1) * of_thread);
    uint16_t* const packed = reinterpret_cast<uint16_t*>(work.memory());
    float* const scratch = work.memory() + of_filters;
    Pack(weights, transposes, packed);
    // So many images at a time that no thread waits long for the others at the end.
    const int64_t count = sizes_.shape.count;
    const int64_t each = std::max<int64_t>(1, count / (kPieces * pool_->NumThreads()));
    Share(count, each, [&](int64_t begin, int64_t end, int thread) {
      functions_.convolve(sizes_, begin, end, images, packed, epilogue, outputs,
                          scratch + thread * of_thread);
    });
  }

  // The gradient of the filters. Throws std::bad_alloc.
  void Correlate(const uint16_t* images, const uint16_t* upstream, uint16_t* gradient) const {
    const int64_t count = sizes_.shape.count, of_sums = Aligned(sizes_.Sums());
    const int64_t each = of_sums + Aligned(functions_.correlate_scratch(sizes_));
    const int64_t parts = Parts(each);
    const Workspace work(parts * each);
    // Each part has sums of its own, so that they are added in the same order in each run.
    Share(parts, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t part = begin; part < end; ++part) {
        float* const sums = work.memory() + part * each;
        std::fill_n(sums, of_sums, 0.0f);
        functions_.correlate(sizes_, count * part / parts, count * (part + 1) / parts, images,
                             upstream, sums, sums + of_sums);
      }
    });
    float* const all = work.memory();
    pool_->ParallelFor(sizes_.shape.filters / Direct::kSide, 9 * sizes_.Inputs() * parts,
                       [&](int64_t begin, int64_t end) {
                         functions_.round(sizes_, begin, end, parts, each, all, gradient);
                       });
  }

 private:
  static constexpr int64_t kPieces = 4;  // that a thread takes, one after the other

  static int64_t Aligned(int64_t floats) { return Direct::RoundUp(floats, 16); }
  static int64_t InFloats(int64_t numbers) { return Aligned((numbers + 1) / 2); }

  // How many threads have sums of their own at most: as many as compute them for several groups of
  // images, so that clearing and adding them takes less time, and as need no more than 256 MB
  // together, `each` floats of them.
  int64_t Parts(int64_t each) const {
    constexpr int64_t kMost = (256 << 20) / sizeof(float), kGroups = 4;
    const int64_t images = kGroups * sizes_.Together();
    const int64_t most = std::min((sizes_.shape.count + images - 1) / images, kMost / each);
    return std::max<int64_t>(1, std::min<int64_t>(pool_->NumThreads(), most));
  }

  void Pack(const uint16_t* weights, bool transposes, uint16_t* packed) const noexcept {
    pool_->ParallelFor(sizes_.shape.filters / Direct::kSide, 3 * sizes_.Seen(),
                       [&](int64_t begin, int64_t end) {
                         functions_.pack(sizes_, begin, end, weights, transposes, packed);
                       });
  }

  // Calls function(begin, end, number of the thread, from 0 to that of the pool's threads).
  template <typename Function>
  void Share(int64_t all, int64_t each, const Function& function) const noexcept {
    using tensorflow::thread::ThreadPool;
    pool_->ParallelForWithWorkerId(
        all,
        ThreadPool::SchedulingParams(ThreadPool::SchedulingStrategy::kFixedBlockSize, absl::nullopt,
                                     each),
        function);
  }

  tensorflow::thread::ThreadPool* const pool_;
  const Direct sizes_;
  const DirectFunctions& functions_;
};

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_DIRECT_STEPS_H_
