// The ring of one warp of a streamed product (stream_kernel.cuh) of a matrix of codes of 4 bits: pieces of 128
// inputs of 16 outputs, two cells of packed_matrix.cuh. The codes become bf16 numbers in the registers that tensor
// cores read. Every lane copies parts of a piece by cp.async: copies of such small pieces by the copy engine take
// longer than the memory does. The words of a piece are in registers, and its stage is filled again, while the piece
// before it is multiplied. This header must not know what the products are used for.
#pragma once
#include "kernels/cuda/products/packed_matrix.cuh"
#include "kernels/cuda/products/stream_input.cuh"

namespace foretoken {

struct CodedMatrix {
  const unsigned char* cells;
  PackedLayout layout;
};

// U: an Unpack of codes.cuh. kGroups: those of a cell, 1, 2 or 4. kFirst: pieces in flight until x has arrived. A
// stage: the codes of both cells, then the scales of both.
template <class U, int kStages, int kGroups, int kFirst = 3> class CellRing {
 public:
  using Matrix = CodedMatrix;
  static constexpr int kInputs = kCellInputs, kBarriers = 0;
  static constexpr bool kInTurns = true;  // two pieces have registers in turn: 5 to 7 % fewer instructions, for copies
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static constexpr bool kCanPoll = true;
#else
  static constexpr bool kCanPoll = false;
#endif
  static __device__ int bytes(const Matrix& m) { return kStages * 2 * m.layout.cell; }

  __device__ CellRing(const Stream& a, const Matrix& m, unsigned char* memory, void*, int tile, int k0)
      : a_(a),
        numbers_(GlobalBytes{m.layout.numbers}),
        second_(a.to.gated ? m.layout.eights / 2 * m.layout.cell : m.layout.cell),
        along_(m.layout.eights * m.layout.cell),
        memory_(shared_address(memory)),
        at_(memory_),
        oldest_(memory_),
        from_(m.cells + m.layout.at(k0 / kCellInputs, a.to.gated ? tile : 2 * tile)),
        tile_(tile),
        left_(a.slice / kCellInputs),
        next_(std::int64_t(a.to.gated ? 1 : 2) * a.stride * m.layout.cell - std::int64_t(left_ - 1) * along_),
        policy_(read_once()) {}

  __device__ static void prepare(const Matrix&) {}
  // As those of Ring, with kFirst pieces in flight at a time. Every stage is a group of copies, empty where no piece
  // remains, and all are begun before the first product.
  __device__ void start(int) {
#pragma unroll 1
    for (int i = 0; i < (kCanPoll ? kFirst : kStages); ++i) request();
  }
  template <class Over> __device__ void fill(int, Over over) {
#pragma unroll 1
    for (int i = kFirst; i < kStages; ++i) {
      if (!over()) wait_but<kFirst - 1>();
      request();
    }
  }
  // Loads the first piece.
  __device__ void begin(int lane) { load_oldest(lane); }

  // The loaded piece times the rows of x from input k on; loads the next one.
  template <int NT> __device__ void multiply_next(float (&sum)[NT][4], const unsigned (&x)[NT], int k, int lane) {
    unsigned b[kWords][NT][4];
#pragma unroll
    for (int w = 0; w < kWords; ++w)
#pragma unroll
      for (int n = 0; n < NT; ++n) load_matrices(b[w][n], x[n] + unsigned((k + w * kWordInputs) * 2));
    const Piece piece = piece_;
    load_oldest(lane);
    multiply(sum, piece, b);
  }

 private:
  static constexpr int kCodeBytes = code_bytes(U::kCode), kWords = 4, kWordInputs = kCellInputs / kWords,
                       kScaleBytes = kGroups * kCellOutputs * bytes_of(U::kForm);
  static_assert(bits_of(U::kCode) == 4 && kStages >= kFirst);

  // A scale as it is stored: it is not computed with before it is used, so that a load is not waited for.
  struct StoredScale {
    unsigned words[(bytes_of(U::kForm) + 3) / 4];
    __device__ unsigned word(int at) const { return words[at / 4]; }
    __device__ unsigned half(int) const { return words[0]; }
    __device__ void load(SharedBytes from) {
      if (bytes_of(U::kForm) == 2)
        words[0] = from.half(0);
      else
#pragma unroll
        for (int i = 0; i < bytes_of(U::kForm) / 4; ++i) words[i] = from.word(4 * i);
    }
  };
  // The parts of a lane: of each cell, the codes and their scales, those of a group or of each word.
  struct Piece {
    unsigned words[2][kWords];
    StoredScale scales[2][kGroups];
  };

  // Loads the oldest piece to registers and releases its stage: requests the next piece into it.
  __device__ void load_oldest(int lane) {
    wait_but<kStages - 1>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      load_words(piece_.words[i], oldest_ + unsigned(i * kCodeBytes + lane * 16));
#pragma unroll
      for (int g = 0; g < kGroups; ++g) piece_.scales[i][g].load(scale_at(i, g, lane));
    }
    __syncwarp();
    oldest_ = behind(oldest_);
    request();
  }
  __device__ SharedBytes scale_at(int i, int group, int lane) const {
    return {oldest_ +
            unsigned(2 * kCodeBytes + i * kScaleBytes + (group * kCellOutputs + lane / 4) * bytes_of(U::kForm))};
  }
  template <int NT>
  __device__ void multiply(float (&sum)[NT][4], const Piece& piece, const unsigned (&b)[kWords][NT][4]) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      Pair pairs[2][U::kPairs];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        U::word(pairs[i], piece.words[i][w], Scale<U::kForm>(piece.scales[i][w * kGroups / kWords]), numbers_);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const unsigned a[4] = {pairs[0][2 * s], pairs[1][2 * s], pairs[0][2 * s + 1], pairs[1][2 * s + 1]};
#pragma unroll
        for (int n = 0; n < NT; ++n) multiply_add(sum[n], a, b[w][n][s * 2], b[w][n][s * 2 + 1]);
      }
    }
  }

  // Copies the next piece that remains, if one does, to the next stage.
  __device__ void request() {
    if (tile_ < a_.tiles) {
      const int lane = int(threadIdx.x) % 32, half = lane / 16, part = lane % 16 * 16;
#pragma unroll
      for (int i = 0; i < 2; ++i) copy(at_ + unsigned(i * kCodeBytes + lane * 16), from_ + i * second_ + lane * 16);
      const unsigned to = at_ + unsigned(2 * kCodeBytes + half * kScaleBytes);
      const unsigned char* const scales = from_ + half * second_ + kCodeBytes;
#pragma unroll
      for (int c = 0; c < kScaleBytes; c += 256)
        if (c + part < kScaleBytes) copy(to + unsigned(c + part), scales + c + part);
      if (--left_ == 0)
        left_ = a_.slice / kCellInputs, tile_ += a_.stride, from_ += next_;
      else
        from_ += along_;
      at_ = behind(at_);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  __device__ unsigned behind(unsigned stage) const {
    const unsigned bytes = unsigned(2 * (kCodeBytes + kScaleBytes)), next = stage + bytes;
    return next == memory_ + kStages * bytes ? memory_ : next;
  }
  template <int kGroupsOfCopies> __device__ static void wait_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsOfCopies) : "memory");
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
  Piece piece_;
  LaneNumbers<U::kCode> numbers_;
  int second_, along_;
  unsigned memory_, at_, oldest_;  // at_: the stage of the next request
  const unsigned char* from_;
  int tile_, left_;
  std::int64_t next_;
  std::uint64_t policy_;
};

}  // namespace foretoken
