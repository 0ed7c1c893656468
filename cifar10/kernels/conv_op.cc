// TensorFlow's ops around winograd.h, small_images.h and direct.h, for CPUs.

#include <sys/mman.h>

#include <mutex>
#include <type_traits>

#include "direct.h"
#include "dispatch.h"
#include "small_images.h"

namespace cifar10 {
namespace {

using tensorflow::bfloat16;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;
using tensorflow::thread::ThreadPool;

// Parts of so many things, of which a thread takes one after the other.
ThreadPool::SchedulingParams Blocks(int64_t each) {
  return ThreadPool::SchedulingParams(ThreadPool::SchedulingStrategy::kFixedBlockSize,
                                      absl::nullopt, each);
}

// Calls function(begin, end, number of the thread, from 0 to that of the pool's threads).
template <typename Function>
void ShareByThread(ThreadPool* pool, int64_t all, int64_t each, const Function& function) noexcept {
  pool->ParallelForWithWorkerId(all, Blocks(each), function);
}

// Memory that ops work with and that is kept for the next ones: memory which is allocated anew has
// to be cleared by the kernel, page by page, and that takes as long as some of the steps.
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

// The steps of direct.h, one after the other, each shared out among TensorFlow's threads.
class DirectSteps {
 public:
  DirectSteps(ThreadPool* pool, const Shape& shape)
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
    ShareByThread(pool_, count, each, [&](int64_t begin, int64_t end, int thread) {
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
    ShareByThread(pool_, parts, 1, [&](int64_t begin, int64_t end, int) {
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

  ThreadPool* const pool_;
  const Direct sizes_;
  const DirectFunctions& functions_;
};

const SmallImageFunctions<float>& SmallImageFunctionsOf(int side, float) {
  return (HasWideRegisters() ? avx512::kFloatSmallImages : avx2::kFloatSmallImages)[side == 7];
}

const SmallImageFunctions<uint16_t>& SmallImageFunctionsOf(int side, uint16_t) {
  return (HasWideRegisters() ? avx512::kBfloat16SmallImages
                             : avx2::kBfloat16SmallImages)[side == 7];
}

// The steps of small_images.h, one after the other, each shared out among TensorFlow's threads. No
// sum is split between threads, so that their number changes no bit of the results.
template <typename Element>
class SmallImageSteps {
 public:
  SmallImageSteps(ThreadPool* pool, const Shape& shape)
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
    ShareByThread(pool_, shape.inputs / kChannels, 1, [&](int64_t begin, int64_t end, int thread) {
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

  // Calls function(begin, end) for parts of `all`, of `each` at a time.
  template <typename Function>
  void Share(int64_t all, int64_t each, const Function& function) const noexcept {
    pool_->ParallelFor(all, Blocks(each), function);
  }

  ThreadPool* const pool_;
  const SmallImages sizes_;
  const SmallImageFunctions<Element>& functions_;
};

constexpr char kSizes[] =
    "Images are not empty, filters come in multiples of 16, channels in multiples of 8 from 16 on, "
    "and of 16 for images of a single tile; padding is SAME, stride 1.";
constexpr char kAboutBf16Dots[] =
    " With `bf16_dots`, what is multiplied may be rounded to bfloat16: if T is bfloat16 and the "
    "CPU has dot products of them.";

// Sets the shape of a convolution's outputs, whose channels are that dimension of the weights.
Status SetOutputs(InferenceContext* c, int filters) {
  ShapeHandle images, weights, outputs;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 4, &images));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 4, &weights));
  TF_RETURN_IF_ERROR(c->ReplaceDim(images, 3, c->Dim(weights, filters), &outputs));
  c->set_output(0, outputs);
  return tensorflow::OkStatus();
}

REGISTER_OP("Cifar10Conv3x3")
    .Input("images: T")
    .Input("weights: T")
    .Output("outputs: T")
    .Attr("T: {float, bfloat16}")
    .Attr("transposes: bool = false")
    .Attr("bf16_dots: bool = false")
    .Doc(std::string(kSizes) + kAboutBf16Dots)
    .SetShapeFn([](InferenceContext* c) {
      bool transposes;
      TF_RETURN_IF_ERROR(c->GetAttr("transposes", &transposes));
      return SetOutputs(c, transposes ? 2 : 3);
    });

REGISTER_OP("Cifar10Conv3x3NormRelu")
    .Input("images: T")
    .Input("weights: T")
    .Input("gamma: float")
    .Input("beta: float")
    .Input("mean: float")
    .Input("variance: float")
    .Input("shortcut: shortcuts * T")
    .Output("y: T")
    .Attr("T: {float, bfloat16}")
    .Attr("shortcuts: int >= 0")
    .Attr("epsilon: float")
    .Doc(
        "ReLU(Cifar10Conv3x3, normalised by given statistics, + shortcut, if there is one); it has "
        "no gradient.")
    .SetShapeFn([](InferenceContext* c) { return SetOutputs(c, 3); });

REGISTER_OP("Cifar10Conv3x3BackpropFilter")
    .Input("images: T")
    .Input("upstream: T")
    .Output("gradient: T")
    .Attr("T: {float, bfloat16}")
    .Attr("bf16_dots: bool = false")
    .Doc(std::string(kSizes) + kAboutBf16Dots)
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle images, upstream;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 4, &images));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 4, &upstream));
      c->set_output(0, c->MakeShape({3, 3, c->Dim(images, 3), c->Dim(upstream, 3)}));
      return tensorflow::OkStatus();
    });

const TileFunctions<float>& AllFunctions(bool, float) {
  return HasWideRegisters() ? avx512::kFloat : avx2::kFloat;
}

const TileFunctions<uint16_t>& AllFunctions(bool bf16_dots, uint16_t) {
  if (bf16_dots) return avx512_bf16::kPairs;
  return HasWideRegisters() ? avx512::kBfloat16 : avx2::kBfloat16;
}

// Those of the tiles that take fewer products.
template <typename Bits>
const Functions<Bits>& FunctionsOf(const Shape& shape, bool bf16_dots) {
  const auto& both = AllFunctions(bf16_dots, Bits());
  return both[shape.Products(both[1].tile) < shape.Products(both[0].tile)];
}

// Whether dot products of bfloat16s are used where that is allowed.
template <typename T>
bool UsesBf16Dots(bool allowed) {
  return allowed && std::is_same<T, bfloat16>::value && HasBf16Dots();
}

// Whether a convolution takes the steps of small_images.h: each image is a single tile, and there
// are no bf16 dot products, which are faster in smaller tiles, or so many filters that they would
// come from too far for the few tiles that share them.
bool TakesSmallSteps(const Shape& shape, bool bf16_dots) {
  constexpr int64_t kMost = 256 * 256;
  return SmallImages::SideOf(shape) > 0 && (!bf16_dots || shape.inputs * shape.filters > kMost);
}

Status Check(const Tensor& images, int64_t filters, Shape* shape) {
  if (images.dims() != 4) {
    return InvalidArgument("images are of rank 4, not of shape ", images.shape().DebugString());
  }
  *shape = {images.dim_size(0), images.dim_size(1), images.dim_size(2), images.dim_size(3),
            filters};
  const int64_t multiple = SmallImages::SideOf(*shape) > 0 ? kChannels : kInputs;
  if (shape->height <= 0 || shape->width <= 0 || shape->inputs < kChannels ||
      shape->inputs % multiple != 0 || shape->filters < kChannels ||
      shape->filters % kChannels != 0) {
    return InvalidArgument(kSizes, " These are ", images.shape().DebugString(), " and ", filters,
                           " filters.");
  }
  return tensorflow::OkStatus();
}

ThreadPool* PoolOf(OpKernelContext* context) {
  return context->device()->tensorflow_cpu_worker_threads()->workers;
}

// Calls function(begin, end) for parts of the filters: those of inputs from kInputs * `begin` to
// kInputs * `end`, at all points, of which each takes so many cycles.
template <typename Function>
void ShareInputs(OpKernelContext* context, const Shape& shape, int64_t cycles,
                 const Function& function) noexcept {
  PoolOf(context)->ParallelFor(shape.inputs / kInputs,
                               kInputs * shape.filters * shape.Points() * cycles, function);
}

// Tile rows, in as many parts as there are threads, but at most so many, and memory for each part.
class Parts {
 public:
  Status Make(OpKernelContext* context, const Shape& shape, int64_t most, int64_t floats) {
    const auto& workers = *context->device()->tensorflow_cpu_worker_threads();
    pool_ = workers.workers;
    rows_ = shape.TileRows();
    count_ = std::max<int64_t>(1, std::min<int64_t>(workers.num_threads, most));
    each_ = (floats + 15) / 16 * 16;
    return context->allocate_temp(tensorflow::DT_FLOAT, {count_, each_}, &memory_);
  }

  int64_t count() const { return count_; }

  float* memory(int64_t part) { return memory_.flat<float>().data() + part * each_; }

  // Calls function(part, begin, end) for all of them.
  template <typename Function>
  void Run(const Function& function) noexcept {
    const auto some = [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        function(part, rows_ * part / count_, rows_ * (part + 1) / count_);
      }
    };
    if (count_ == 1) {
      some(0, 1);
      return;
    }
    pool_->ParallelFor(count_, Blocks(1), some);
  }

 private:
  ThreadPool* pool_;
  int64_t rows_, count_, each_;
  Tensor memory_;
};

// Filters that convolve a gradient of outputs into one of inputs: mirrored, with channels swapped;
// those of the gradient's channels from kInputs * `begin` to kInputs * `end`.
template <typename Bits>
void Transpose(const Shape& shape, int64_t begin, int64_t end, const Bits* weights,
               Bits* transposed) {
  const int64_t rows = shape.filters, columns = shape.inputs, size = rows * columns;
  for (int position = 0; position < 9; ++position) {
    const Bits* const from = weights + (8 - position) * size;
    Bits* const to = transposed + position * size;
    for (int64_t column = begin * kInputs; column < end * kInputs; ++column) {
      for (int64_t row = 0; row < rows; ++row)
        to[column * rows + row] = from[row * columns + column];
    }
  }
}

// The sizes of the convolution of inputs 0 and 1, images and weights; see `Transpose`.
Status SizesOf(OpKernelContext* context, bool transposes, Shape* shape) {
  const TensorShape& filters = context->input(1).shape();
  if (filters.dims() != 4) {
    return InvalidArgument("weights are of rank 4, not of shape ", filters.DebugString());
  }
  TF_RETURN_IF_ERROR(Check(context->input(0), filters.dim_size(transposes ? 2 : 3), shape));
  const int64_t from = transposes ? shape->filters : shape->inputs;
  const int64_t to = transposes ? shape->inputs : shape->filters;
  TensorShape expected;
  // An error where its constructor would abort the process: if there are no numbers, there may be
  // more inputs and filters than a tensor's size can express.
  TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape({3, 3, from, to}, &expected));
  if (filters != expected) {
    return InvalidArgument("weights have the shape ", filters.DebugString(), ", not ",
                           expected.DebugString());
  }
  return tensorflow::OkStatus();
}

// The convolution of inputs 0 and 1, images and weights.
template <typename T>
void Convolve(OpKernelContext* context, Shape shape, bool transposes, bool bf16_dots,
              const Epilogue<typename BitsOf<T>::Type>& epilogue, Tensor* outputs) {
  using Bits = typename BitsOf<T>::Type;
  const Tensor &images = context->input(0), &weights = context->input(1);
  if constexpr (std::is_same<T, bfloat16>::value) {
    if (!bf16_dots && HasMatrices()) {
      DirectSteps(PoolOf(context), shape)
          .Convolve(Read<T>(images), transposes, Read<T>(weights), epilogue, Write<T>(outputs));
      return;
    }
  }
  if (TakesSmallSteps(shape, bf16_dots)) {
    SmallImageSteps<Bits>(PoolOf(context), shape)
        .Convolve(Read<T>(images), transposes, Read<T>(weights), epilogue, Write<T>(outputs));
    return;
  }
  const auto& functions = FunctionsOf<Bits>(shape, bf16_dots);
  shape.tile = functions.tile;
  Tensor evaluated;
  OP_REQUIRES_OK(
      context, context->allocate_temp(tensorflow::DT_FLOAT,
                                      {shape.Points() * shape.inputs * shape.filters}, &evaluated));
  Parts parts;
  OP_REQUIRES_OK(context, parts.Make(context, shape, shape.TileRows(), functions.scratch(shape)));
  std::vector<Bits> transposed(transposes ? weights.NumElements() : 0);
  float* const filled = evaluated.flat<float>().data();
  ShareInputs(context, shape, 1, [&](int64_t begin, int64_t end) {
    if (transposes) Transpose(shape, begin, end, Read<T>(weights), transposed.data());
    functions.evaluate(shape, begin, end, transposes ? transposed.data() : Read<T>(weights),
                       filled);
  });
  parts.Run([&](int64_t part, int64_t begin, int64_t end) {
    functions.convolve(shape, begin, end, Read<T>(images), filled, epilogue, Write<T>(outputs),
                       parts.memory(part));
  });
}

template <typename T>
class Conv3x3 : public Op {
 public:
  explicit Conv3x3(OpKernelConstruction* context) : Op(context) {
    OP_REQUIRES_OK(context, context->GetAttr("transposes", &transposes_));
    OP_REQUIRES_OK(context, context->GetAttr("bf16_dots", &bf16_dots_));
  }

  void Run(OpKernelContext* context) override {
    Shape shape;
    OP_REQUIRES_OK(context, SizesOf(context, transposes_, &shape));
    Tensor* outputs;
    OP_REQUIRES_OK(context,
                   context->allocate_output(
                       0, {shape.count, shape.height, shape.width, shape.filters}, &outputs));
    Convolve<T>(context, shape, transposes_, UsesBf16Dots<T>(bf16_dots_), {}, outputs);
  }

 private:
  bool transposes_, bf16_dots_;
};

template <typename T>
class Conv3x3NormRelu : public Op {
 public:
  explicit Conv3x3NormRelu(OpKernelConstruction* context) : Op(context) {
    OP_REQUIRES_OK(context, context->GetAttr("epsilon", &epsilon_));
  }

  void Run(OpKernelContext* context) override {
    Shape shape;
    OP_REQUIRES_OK(context, SizesOf(context, false, &shape));
    const TensorShape expected({shape.count, shape.height, shape.width, shape.filters});
    for (int index = kNumbers; index < kShortcut; ++index) {
      const TensorShape& numbers = context->input(index).shape();
      OP_REQUIRES(context, numbers == TensorShape({shape.filters}),
                  InvalidArgument("a channel's numbers have the shape ", numbers.DebugString(),
                                  ", not [", shape.filters, "]"));
    }
    const bool has_shortcut = context->num_inputs() > kShortcut;
    OP_REQUIRES(context,
                !has_shortcut || (context->num_inputs() == kShortcut + 1 &&
                                  context->input(kShortcut).shape() == expected),
                InvalidArgument("one shortcut of the shape ", expected.DebugString()));
    const Normaliser normaliser(Read<float>(context->input(kNumbers + 2)),
                                Read<float>(context->input(kNumbers + 3)),
                                Read<float>(context->input(kNumbers)),
                                Read<float>(context->input(kNumbers + 1)), epsilon_, shape.filters);
    Epilogue<typename BitsOf<T>::Type> epilogue{normaliser.line()};
    Tensor* y;
    if (has_shortcut) {
      epilogue.shortcut = Read<T>(context->input(kShortcut));
      OP_REQUIRES_OK(context,
                     context->forward_input_or_allocate_output({kShortcut}, 0, expected, &y));
    } else {
      OP_REQUIRES_OK(context, context->allocate_output(0, expected, &y));
    }
    Convolve<T>(context, shape, /*transposes=*/false, /*bf16_dots=*/false, epilogue, y);
  }

 private:
  static constexpr int kNumbers = 2, kShortcut = 6;  // inputs: gamma and what follows it

  float epsilon_;
};

// How many threads have sums of their own, of `size` floats, at most: as many as have 64 tiles
// each, so that clearing and adding their sums takes less time than computing them, and as have no
// more than 256 MB of sums together.
int64_t MostSums(const Shape& shape, int64_t size) {
  constexpr int64_t kMost = (256 << 20) / sizeof(float);
  const int64_t rows = 4 * shape.RowsTogether();
  return std::min((shape.TileRows() + rows - 1) / rows, kMost / size);
}

void Add(int64_t count, const float* numbers, float* sums) {
  for (int64_t at = 0; at < count; ++at) sums[at] += numbers[at];
}

template <typename T>
class Conv3x3BackpropFilter : public Op {
 public:
  explicit Conv3x3BackpropFilter(OpKernelConstruction* context) : Op(context) {
    OP_REQUIRES_OK(context, context->GetAttr("bf16_dots", &bf16_dots_));
  }

  void Run(OpKernelContext* context) override {
    const Tensor &images = context->input(0), &upstream = context->input(1);
    Shape shape;
    OP_REQUIRES(
        context, upstream.dims() == 4,
        InvalidArgument("upstream is of rank 4, not of shape ", upstream.shape().DebugString()));
    OP_REQUIRES_OK(context, Check(images, upstream.dim_size(3), &shape));
    // Errors where the constructor of a shape would abort the process, as in `SizesOf`.
    TensorShape expected, of_filters;
    OP_REQUIRES_OK(context,
                   TensorShape::BuildTensorShape(
                       {shape.count, shape.height, shape.width, shape.filters}, &expected));
    OP_REQUIRES_OK(context,
                   TensorShape::BuildTensorShape({3, 3, shape.inputs, shape.filters}, &of_filters));
    OP_REQUIRES(context, upstream.shape() == expected,
                InvalidArgument("upstream has the shape ", upstream.shape().DebugString(), ", not ",
                                expected.DebugString()));
    Tensor* gradient;
    OP_REQUIRES_OK(context, context->allocate_output(0, of_filters, &gradient));
    using Bits = typename BitsOf<T>::Type;
    const bool bf16_dots = UsesBf16Dots<T>(bf16_dots_);
    if constexpr (std::is_same<T, bfloat16>::value) {
      if (!bf16_dots && HasMatrices()) {
        DirectSteps(PoolOf(context), shape)
            .Correlate(Read<T>(images), Read<T>(upstream), Write<T>(gradient));
        return;
      }
    }
    if (SmallImages::SideOf(shape) > 0) {
      SmallImageSteps<Bits>(PoolOf(context), shape)
          .Correlate(Read<T>(images), Read<T>(upstream), Write<T>(gradient));
      return;
    }
    const auto& functions = FunctionsOf<Bits>(shape, bf16_dots);
    shape.tile = functions.tile;
    // Each part has sums of its own, so that they are added in the same order in each run.
    const int64_t plane = shape.inputs * shape.filters, size = shape.Points() * plane;
    Parts parts;
    OP_REQUIRES_OK(context, parts.Make(context, shape, MostSums(shape, size),
                                       size + functions.scratch(shape)));
    parts.Run([&](int64_t part, int64_t begin, int64_t end) {
      float* const sums = parts.memory(part);
      std::fill_n(sums, size, 0.0f);
      functions.correlate(shape, begin, end, Read<T>(images), Read<T>(upstream), sums, sums + size);
    });
    float* const all = parts.memory(0);
    const auto finish = [&](int64_t begin, int64_t end) {
      const int64_t each = kInputs * shape.filters, count = (end - begin) * each;
      for (int64_t place = begin * each; place < size; place += plane) {
        for (int64_t part = 1; part < parts.count(); ++part) {
          Add(count, parts.memory(part) + place, all + place);
        }
      }
      functions.interpolate(shape, begin, end, all, Write<T>(gradient));
    };
    // Two sums are added in less CPU time than other threads take to wake up and to wait.
    if (parts.count() <= 2) {
      finish(0, shape.inputs / kInputs);
    } else {
      ShareInputs(context, shape, parts.count(), finish);
    }
  }

 private:
  bool bf16_dots_;
};

#define REGISTER(T)                                                                               \
  REGISTER_KERNEL_BUILDER(                                                                        \
      Name("Cifar10Conv3x3").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), Conv3x3<T>);  \
  REGISTER_KERNEL_BUILDER(                                                                        \
      Name("Cifar10Conv3x3NormRelu").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"),       \
      Conv3x3NormRelu<T>);                                                                        \
  REGISTER_KERNEL_BUILDER(                                                                        \
      Name("Cifar10Conv3x3BackpropFilter").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
      Conv3x3BackpropFilter<T>)

REGISTER(float);
REGISTER(bfloat16);

}  // namespace
}  // namespace cifar10

// What library.py asks, and what its tests compare with its own answers.
extern "C" {

int cifar10_instructions() {
  using namespace cifar10;
  return HasMatrices() ? kAmx : HasBf16Dots() ? kAvx512Bf16 : HasWideRegisters() ? kAvx512 : kAvx2;
}

int cifar10_channels() { return cifar10::kChannels; }

int cifar10_inputs() { return cifar10::kInputs; }

bool cifar10_is_one_tile(int64_t height, int64_t width) {
  return cifar10::SmallImages::SideOf({1, height, width, 0, 0}) > 0;
}

int64_t cifar10_positions(int64_t height, int64_t width) {
  cifar10::Shape shape = {1, height, width, 0, 0};
  shape.tile = cifar10::FunctionsOf<float>(shape, /*bf16_dots=*/false).tile;
  return shape.Down() * shape.Across() * shape.tile * shape.tile;
}
}
