// What the ops of normalisation.h share: rows in blocks, and the numbers that normalise channels.

#ifndef CIFAR10_KERNELS_ROW_BLOCKS_H_
#define CIFAR10_KERNELS_ROW_BLOCKS_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "normalisation.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/threadpool.h"

namespace cifar10 {

// The numbers that are summed in float32; the sums of such blocks are added in float64, in their
// order, whichever threads compute them.
constexpr int64_t kBlock = 16384;

// Rows of numbers in blocks; two sums for each block and channel, and both over all blocks. There
// may be none of them.
class RowBlocks {
 public:
  // Throws std::bad_alloc.
  tensorflow::Status Make(const tensorflow::TensorShape& shape) {
    channels_ = shape.dims() > 0 ? shape.dim_size(shape.dims() - 1) : 0;
    if (channels_ <= 0 || channels_ % kChannels != 0) {
      return tensorflow::errors::InvalidArgument("x has channels in multiples of ", kChannels,
                                                 " and is not of shape ", shape.DebugString());
    }
    rows_ = shape.num_elements() / channels_;
    each_ = std::max<int64_t>(1, kBlock / channels_);
    sums_.resize(2 * Count() * channels_);
    return tensorflow::OkStatus();
  }

  int64_t channels() const { return channels_; }
  int64_t rows() const { return rows_; }
  int64_t Count() const { return (rows_ + each_ - 1) / each_; }
  int64_t RowsOf(int64_t block) const { return std::min(each_, rows_ - block * each_); }
  float* First(int64_t block) { return sums_.data() + 2 * block * channels_; }
  float* Second(int64_t block) { return First(block) + channels_; }

  // One of the sums over all blocks.
  double All(const float* of_first) const {
    double sum = 0.0;
    for (int64_t block = 0; block < Count(); ++block) sum += of_first[2 * block * channels_];
    return sum;
  }

  // Calls function(block, place of its first number, rows) for all blocks.
  template <typename Function>
  void Run(tensorflow::OpKernelContext* context, const Function& function) noexcept {
    context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(
        Count(), each_ * channels_, [&](int64_t begin, int64_t end) {
          for (int64_t block = begin; block < end; ++block) {
            function(block, block * each_ * channels_, RowsOf(block));
          }
        });
  }

 private:
  int64_t channels_ = 0, rows_ = 0, each_ = 0;
  std::vector<float> sums_;
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
  // The number, or for any NaN the one that `Store` in lanes.h rounds to a NaN.
  template <typename Number>
  static Number Stored(Number number) {
    return std::isnan(number) ? std::numeric_limits<Number>::quiet_NaN() : number;
  }

  std::vector<double> deviations_;
  std::vector<float> means_, factors_, offsets_;
  Line line_;
};

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_ROW_BLOCKS_H_
