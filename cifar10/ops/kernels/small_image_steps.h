// The steps of small_images.h, one after the other, each shared out among TensorFlow's threads.

#ifndef CIFAR10_KERNELS_SMALL_IMAGE_STEPS_H_
#define CIFAR10_KERNELS_SMALL_IMAGE_STEPS_H_

#include <algorithm>

#include "dispatch.h"
#include "small_images.h"
#include "tensorflow/core/platform/threadpool.h"
#include "workspace.h"

namespace cifar10 {

inline const SmallImageFunctions<float>& SmallImageFunctionsOf(int side, float) {
  return (HasWideRegisters() ? avx512::kFloatSmallImages : avx2::kFloatSmallImages)[side == 7];
}

inline const SmallImageFunctions<uint16_t>& SmallImageFunctionsOf(int side, uint16_t) {
  return (HasWideRegisters() ? avx512::kBfloat16SmallImages
                             : avx2::kBfloat16SmallImages)[side == 7];
}

// No sum is split between threads, so that their number changes no bit of the results.
template <typename Element>
class SmallImageSteps {
 public:
  SmallImageSteps(tensorflow::thread::ThreadPool* pool, const Shape& shape)
      : pool_(pool),
        sizes_{shape, SmallImages::SideOf(shape)},
        functions_(SmallImageFunctionsOf(sizes_.side, Element())) {}

  // The convolution of images and weights; see `evaluate_filters`. Throws std::bad_alloc.
  void Convolve(const Element* images, bool transposes, const Element* weights,
                const Epilogue<Element>& epilogue, Element* outputs) const {
    const Shape& shape = sizes_.shape;
    const int64_t of_filters = sizes_.Planes() * sizes_.FilterPlane();
    const int64_t of_inputs = sizes_.Planes() * sizes_.InputPlane();
    const int64_t of_outputs = sizes_.Planes() * sizes_.OutputPlane();
    // Memory for each thread of the pool, and for this one.
    const int64_t of_thread = transposes ? sizes_.Transposed() : 0;
    const Workspace work(of_filters + of_inputs + of_outputs +
                         (pool_->NumThreads() + 1) * of_thread);
    float* const filters = work.memory();
    float* const rows = filters + of_filters;
    float* const products = rows + of_inputs;
    float* const transposed = products + of_outputs;
    ShareByThread(shape.inputs / kChannels, [&](int64_t begin, int64_t end, int thread) {
      float* const own = transposes ? transposed + thread * of_thread : nullptr;
      functions_.evaluate_filters(sizes_, begin, end, weights, reinterpret_cast<Element*>(own),
                                  filters);
    });
    ForGroups([&](int64_t first, int64_t count) {
      Share(count, kImages, [&](int64_t begin, int64_t end) {
        functions_.evaluate(sizes_, begin, end, images + first * Size(shape.inputs), rows);
      });
      Share(sizes_.Planes(), 1, [&](int64_t begin, int64_t end) {
        functions_.multiply(sizes_, count, begin, end, rows, filters, products);
      });
      Share(count, kImages, [&](int64_t begin, int64_t end) {
        const int64_t place = first * Size(shape.filters);
        Epilogue<Element> own = epilogue;
        if (own.shortcut != nullptr) own.shortcut += place;
        functions_.interpolate(sizes_, begin, end, products, own, outputs + place);
      });
    });
  }

  // The gradient of the filters. Throws std::bad_alloc.
  void Correlate(const Element* images, const Element* upstream, Element* gradient) const {
    const Shape& shape = sizes_.shape;
    const int64_t of_filters = sizes_.Planes() * sizes_.FilterPlane();
    const int64_t of_inputs = sizes_.Planes() * sizes_.InputPlane();
    const Workspace work(of_filters + of_inputs + sizes_.Planes() * sizes_.OutputPlane());
    float* const sums = work.memory();
    float* const rows = sums + of_filters;
    float* const panels = rows + of_inputs;
    if (shape.count == 0) std::fill_n(sums, of_filters, 0.0f);
    ForGroups([&](int64_t first, int64_t count) {
      Share(count, kImages, [&](int64_t begin, int64_t end) {
        functions_.evaluate(sizes_, begin, end, images + first * Size(shape.inputs), rows);
        functions_.evaluate_upstream(sizes_, begin, end, upstream + first * Size(shape.filters),
                                     panels);
      });
      Share(sizes_.Planes(), 1, [&](int64_t begin, int64_t end) {
        functions_.correlate(sizes_, count, first > 0, begin, end, rows, panels, sums);
      });
    });
    Share(shape.inputs / kChannels, 1, [&](int64_t begin, int64_t end) {
      functions_.interpolate_filters(sizes_, begin, end, sums, gradient);
    });
  }

 private:
  static constexpr int64_t kImages = 4;  // that a thread takes at a time

  // Elements of an image.
  int64_t Size(int64_t channels) const {
    return sizes_.shape.height * sizes_.shape.width * channels;
  }

  // Calls function(first, count) for all groups of images.
  template <typename Function>
  void ForGroups(const Function& function) const {
    for (int64_t first = 0; first < sizes_.shape.count; first += kImagesTogether) {
      function(first, std::min(kImagesTogether, sizes_.shape.count - first));
    }
  }

  using ThreadPool = tensorflow::thread::ThreadPool;

  // Calls function(begin, end) for parts of `all`, of `each` at a time.
  template <typename Function>
  void Share(int64_t all, int64_t each, const Function& function) const noexcept {
    pool_->ParallelFor(all, Blocks(each), function);
  }

  // Calls function(begin, end, number of the thread, from 0 to that of the pool's threads).
  template <typename Function>
  void ShareByThread(int64_t all, const Function& function) const noexcept {
    pool_->ParallelForWithWorkerId(all, Blocks(1), function);
  }

  static ThreadPool::SchedulingParams Blocks(int64_t each) {
    return ThreadPool::SchedulingParams(ThreadPool::SchedulingStrategy::kFixedBlockSize,
                                        absl::nullopt, each);
  }

  tensorflow::thread::ThreadPool* const pool_;
  const SmallImages sizes_;
  const SmallImageFunctions<Element>& functions_;
};

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_SMALL_IMAGE_STEPS_H_
