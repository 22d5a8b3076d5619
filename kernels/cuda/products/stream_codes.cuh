// The ring of one warp of a streamed product (stream_kernel.cuh) of a packed matrix: pieces of 128 inputs of 16 outputs,
// two cells of packed_matrix.cuh. The codes become bf16 numbers in the registers that tensor cores read. Every lane
// copies parts of a piece by cp.async: copies of single pieces by the copy engine take longer than the memory does. This
// header must not know what the products are used for.
#pragma once
#include "kernels/cuda/products/packed_matrix.cuh"
#include "kernels/cuda/products/stream_input.cuh"

namespace foretoken {

struct CodedMatrix {
  const unsigned char* cells;
  PackedLayout layout;
};

// U: an Unpack of codes.cuh. kOneGroup: all inputs of a cell share a scale. A stage: the codes of both cells, then the
// scales of both.
template <class U, int kStagesOf, bool kOneGroup, int kBlocksOf = 2> class CellRing {
 public:
  using Matrix = CodedMatrix;
  static constexpr int kStages = kStagesOf, kInputs = kCellInputs, kBlocks = kBlocksOf, kBarriers = 0;
  static constexpr bool kCanPoll = true;
  static __device__ int bytes(const Matrix& m) { return kStages * 2 * m.layout.cell; }

  __device__ CellRing(const Stream& a, const Matrix& m, unsigned char* memory, void*, int tile, int k0)
      : a_(a),
        scale_bytes_(kOneGroup ? kCellOutputs * bytes_of(U::kForm) : m.layout.scale_bytes()),
        second_(a.gated ? m.layout.eights / 2 * m.layout.cell : m.layout.cell),
        along_(m.layout.eights * m.layout.cell),
        memory_(shared_address(memory)),
        at_(memory_),
        from_(m.cells + m.layout.at(k0 / kCellInputs, a.gated ? tile : 2 * tile)),
        group_log_(m.layout.group_log),
        tile_(tile),
        left_(a.slice / kCellInputs),
        next_(std::int64_t(a.gated ? 1 : 2) * a.stride * m.layout.cell - std::int64_t(left_ - 1) * along_),
        policy_(read_once()) {}

  __device__ static void prepare(const Matrix& m) {
    if (U::kCode == Code::table && threadIdx.x < 16) table()[threadIdx.x] = m.layout.numbers[threadIdx.x];
  }
  __device__ void start(int) {
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) request(), advance();
  }
  template <class Over> __device__ void fill(int, Over) {}

  // The next piece times the rows of x from input k on; its stage is filled again.
  template <int NT> __device__ void multiply_next(float (&sum)[NT][4], const unsigned (&x)[NT], int k, int lane) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
    __syncwarp();
    unsigned words[2][kWords];
#pragma unroll
    for (int w = 0; w < kWords; w += 4)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        load_words(&words[i][w], at_ + unsigned(i * kCodeBytes + w / 4 * 512 + lane * 16));
    if constexpr (kOneGroup) {
      const Scale<U::kForm> scales[2] = {scale(0, 0, lane), scale(1, 0, lane)};
      __syncwarp();
      request(), advance();
      multiply(sum, words, [&](int i, int) { return scales[i]; }, x, k, lane);
    } else {
      multiply(sum, words, [&](int i, int w) { return scale(i, w, lane); }, x, k, lane);
      __syncwarp();
      request(), advance();
    }
  }

 private:
  static constexpr int kCodeBytes = code_bytes(U::kCode), kWords = bits_of(U::kCode), kWordInputs = kCellInputs / kWords;

  __device__ Scale<U::kForm> scale(int i, int w, int lane) const {
    const int group = w * kWordInputs >> (kOneGroup ? 7 : group_log_);
    return Scale<U::kForm>(SharedBytes{at_ + unsigned(2 * kCodeBytes + i * scale_bytes_ +
                                                      (group * kCellOutputs + lane / 4) * bytes_of(U::kForm))});
  }
  template <int NT, class ScaleOf> __device__ void multiply(float (&sum)[NT][4], const unsigned (&words)[2][kWords],
                                                            ScaleOf scale_of, const unsigned (&x)[NT], int k,
                                                            int lane) const {
    unsigned b[kCellInputs / 32][NT][4];
#pragma unroll
    for (int s = 0; s < kCellInputs / 32; ++s)
#pragma unroll
      for (int n = 0; n < NT; ++n) load_matrices(b[s][n], x[n] + unsigned((k + s * 32) * 2));
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      Pair pairs[2][U::kPairs];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        U::word(pairs[i], words[i][w], scale_of(i, w), SharedBytes{shared_address(table())});
#pragma unroll
      for (int s = 0; s < kWordInputs / 16; ++s) {
        const int step = w * (kWordInputs / 16) + s;
        const unsigned a[4] = {pairs[0][2 * s], pairs[1][2 * s], pairs[0][2 * s + 1], pairs[1][2 * s + 1]};
#pragma unroll
        for (int n = 0; n < NT; ++n)
          multiply_add(sum[n], a, b[step / 2][n][step % 2 * 2], b[step / 2][n][step % 2 * 2 + 1]);
      }
    }
  }
  __device__ static float* table() {
    __shared__ float numbers[U::kCode == Code::table ? 16 : 1];
    return numbers;
  }

  // Copies the next piece that remains, if one does, to the stage at at_.
  __device__ void request() {
    if (tile_ < a_.tiles) {
      const int lane = int(threadIdx.x) % 32, half = lane / 16, part = lane % 16 * 16;
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int c = 0; c < kCodeBytes; c += 512)
          copy(at_ + unsigned(i * kCodeBytes + c + lane * 16), from_ + i * second_ + c + lane * 16);
      const unsigned to = at_ + unsigned(2 * kCodeBytes + half * scale_bytes_);
      const unsigned char* const scales = from_ + half * second_ + kCodeBytes;
      if (kOneGroup) {
        if (part < scale_bytes_) copy(to + unsigned(part), scales + part);
      } else {
        for (int c = part; c < scale_bytes_; c += 256) copy(to + unsigned(c), scales + c);
      }
      if (--left_ == 0)
        left_ = a_.slice / kCellInputs, tile_ += a_.stride, from_ += next_;
      else
        from_ += along_;
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  __device__ void advance() {
    at_ += unsigned(2 * (kCodeBytes + scale_bytes_));
    if (at_ == memory_ + unsigned(kStages * 2 * (kCodeBytes + scale_bytes_))) at_ = memory_;
  }
  __device__ void copy(unsigned to, const unsigned char* from) const {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy_)
                 : "memory");
  }
  __device__ static void load_words(unsigned* w, unsigned at) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(at)
                 : "memory");
  }

  const Stream& a_;
  int scale_bytes_, second_, along_;
  unsigned memory_, at_;
  const unsigned char* from_;
  int group_log_, tile_, left_;
  std::int64_t next_;
  std::uint64_t policy_;
};

}  // namespace foretoken
