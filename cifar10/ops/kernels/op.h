// An op that reports that memory has run out, as TensorFlow's own ops do.

#ifndef CIFAR10_KERNELS_OP_H_
#define CIFAR10_KERNELS_OP_H_

#include <new>

#include "tensorflow/core/framework/op_kernel.h"

namespace cifar10 {

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

}  // namespace cifar10

#endif  // CIFAR10_KERNELS_OP_H_
