// Packs codes into cells, and unpacks cells to bf16. Bytes: packing out * in read, half of it or all written, once at
// load; unpacking bits / 8 read and 2 written for each weight.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cuda/products/packed_matrix.cuh"
#include "kernels/formats/format.h"

namespace foretoken {
namespace {

// A weight as kernels/weight.h has it, on the device.
struct Stored {
  const std::uint8_t* codes;  // [out, in]
  const float* numbers;       // by code
  const unsigned* parts;      // [out, in / group, words_of()]: ScaleParts
  std::int64_t out, in;
  int group, offset;  // `offset` is added to a code
  int neutral;        // the code of 0
};
constexpr int words_of(ScaleForm form) { return (bytes_of(form) + 3) / 4; }

// Magnitudes of scales but 0: so that no product with a number, of low parts too, is subnormal or too large, and no
// scale that is multiplied by a power of two.
constexpr float kLeastScale = 0x1p-100f, kLeastPair = 0x1p-80f, kMostScale = 0x1p-6f, kMostLifted = 0x1p100f;
constexpr float most_scale(Code code) { return code == Code::e4m3 ? 0x1p6f : code == Code::e2m1 ? 1.0f : kMostScale; }
// Zero points: so that they and their differences to codes are bf16 numbers.
constexpr float kMostZero = 120;

// The input of pair i of word w in a cell, for a lane; the other number of the pair is the next.
__device__ int input_of(Code code, int w, int i, int lane) {
  const int step = bits_of(code) == 4 ? 2 * w + i / 2 : w;
  return step * 16 + i % 2 * 8 + lane % 4 * 2;
}
__device__ int place_of(int w, int lane) { return w / 4 * 512 + lane * 16 + w % 4 * 4; }

// A warp packs a cell. Sets *nans where a code means NaN.
__global__ void pack_kernel(Stored s, PackedLayout layout, unsigned char* cells, std::int64_t count, int* nans) {
  const std::int64_t cell = (blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x) / 32;
  if (cell >= count) return;
  const int lane = int(threadIdx.x) % 32;
  const std::int64_t first = cell % layout.eights * kCellOutputs, o = first + lane / 4,
                     k0 = cell / layout.eights * kCellInputs, groups = s.in / s.group;
  unsigned char* const to = cells + cell * layout.cell;
  const int bits = bits_of(layout.code), words = words_of(layout.form);
  const auto parts_of = [&](std::int64_t output, std::int64_t k) {
    return s.parts + (output * groups + k / s.group) * words;
  };
  const unsigned no_scale = unsigned(__bfloat16_as_ushort(__float2bfloat16_rn(kNoScale)));
  const auto code = [&](std::int64_t k) {
    if (o >= s.out) return 0u;
    const unsigned c = s.codes[o * s.in + k];
    if (isnan(s.numbers[c])) *nans = 1;
    const bool is_none = layout.form == ScaleForm::bf16 && *parts_of(o, k) == no_scale;
    return spread(layout.code, is_none ? unsigned(s.neutral) : c + unsigned(s.offset));
  };
  for (int w = 0; w < bits; ++w) {
    unsigned word = 0;
    for (int i = 0; i < 16 / bits; ++i) {
      const std::int64_t k = k0 + input_of(layout.code, w, i, lane);
      word |= placed(layout.code, code(k) | code(k + 1) << 16, i);
    }
    *reinterpret_cast<unsigned*>(to + place_of(w, lane)) = word;
  }
  for (int i = lane; i < layout.scale_bytes() / bytes_of(layout.form); i += 32) {
    const std::int64_t output = first + i % kCellOutputs, k = k0 + (i / kCellOutputs << layout.group_log);
    unsigned char* const scale = to + code_bytes(layout.code) + i * bytes_of(layout.form);
    for (int j = 0; j < words; ++j) {
      const unsigned part = output < s.out ? parts_of(output, k)[j] : 0;
      if (layout.form == ScaleForm::bf16)
        *reinterpret_cast<std::uint16_t*>(scale) = std::uint16_t(part);
      else
        reinterpret_cast<unsigned*>(scale)[j] = part;
    }
  }
}

// Two of each four inputs: `fours` bf16 [out, in / 4, 2], `kept` a bit for each input. A warp packs a cell.
__global__ void pack_sparse_kernel(const unsigned* fours, const std::uint16_t* kept, PackedLayout layout,
                                   unsigned char* cells, std::int64_t out, std::int64_t in, std::int64_t count) {
  const std::int64_t cell = (blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x) / 32;
  if (cell >= count) return;
  const int lane = int(threadIdx.x) % 32;
  const std::int64_t first = cell % layout.eights * kCellOutputs, o = first + lane / 4,
                     k0 = cell / layout.eights * kCellInputs;
  unsigned char* const to = cells + cell * layout.cell;
  for (int w = 0; w < kCellInputs / 16; ++w) {
    const std::int64_t four = (k0 + 16 * w) / 4 + lane % 4 / 2 + lane % 2 * 2;
    *reinterpret_cast<unsigned*>(to + place_of(w, lane)) = o < out ? fours[o * (in / 4) + four] : 0;
  }
  for (int i = lane; i < kCellInputs / 16 * kCellOutputs; i += 32) {
    const std::int64_t output = first + i % kCellOutputs, sixteen = k0 / 16 + i / kCellOutputs;
    *reinterpret_cast<std::uint16_t*>(to + code_bytes(Code::sparse) + 2 * i) =
        output < out ? kept[output * (in / 16) + sixteen] : std::uint16_t(0);
  }
}

// A warp writes a cell whose scales have another form. Sets *none where one has no parts in it.
__global__ void reform_kernel(PackedLayout from, PackedLayout to, const unsigned char* cells,
                              unsigned char* reformed_to, std::int64_t count, int* none) {
  const std::int64_t cell = (blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x) / 32;
  if (cell >= count) return;
  const int lane = int(threadIdx.x) % 32, codes = code_bytes(from.code);
  const unsigned char* const source = cells + cell * from.cell;
  unsigned* const target = reinterpret_cast<unsigned*>(reformed_to + cell * to.cell);
  for (int i = lane; i < codes / 4; i += 32) target[i] = reinterpret_cast<const unsigned*>(source)[i];
  for (int i = lane; i < to.scale_bytes() / 4; i += 32) {
    const unsigned char* const scale = source + codes + i * bytes_of(from.form);
    const auto [parts, fits] = reformed(from.code, from.form, to.form,
                                        from.form == ScaleForm::bf16 ? *reinterpret_cast<const std::uint16_t*>(scale)
                                                                     : *reinterpret_cast<const unsigned*>(scale));
    target[codes / 4 + i] = parts;
    if (!fits) *none = 1;
  }
}

// Calls f(i, k, pair) for the numbers of word w of a cell that a lane holds: inputs k and k + 1 of the cell.
template <class U, class F>
__device__ void for_pairs(const PackedLayout& layout, const unsigned char* cell, int w, int lane, F f) {
  const int group = input_of(U::kCode, w, 0, 0) >> layout.group_log;
  const int at = code_bytes(U::kCode) + (group * kCellOutputs + lane / 4) * bytes_of(U::kForm);
  const Scale<U::kForm> scale(GlobalBytes{cell + at});
  Pair pairs[U::kPairs];
  const auto word = [&](int l) { return *reinterpret_cast<const unsigned*>(cell + place_of(w, l)); };
  if constexpr (U::kCode == Code::sparse)
    U::pairs(pairs, word(lane & ~1), word(lane | 1), scale, lane % 4);
  else
    U::word(pairs, word(lane), scale, GlobalNumbers{layout.numbers});
#pragma unroll
  for (int i = 0; i < U::kPairs; ++i) f(i, input_of(U::kCode, w, i, lane), pairs[i]);
}

// Of 32 inputs each of four neighbouring lanes holds pairs 0 to 3, of eight inputs each. Returns all of pair `lane %
// 4`: eight neighbouring inputs.
__device__ uint4 eight_inputs(const Pair (&pairs)[4], int lane) {
  Pair mine[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int to = lane % 4 ^ j;  // exchanges with this lane; registers are not indexed at run time
    const Pair sent = to == 0 ? pairs[0] : to == 1 ? pairs[1] : to == 2 ? pairs[2] : pairs[3];
    const Pair got = __shfl_xor_sync(0xffffffffu, sent, j);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (k == to) mine[k] = got;
  }
  return {mine[0], mine[1], mine[2], mine[3]};
}

// Launched behind kernels that write a matrix: products may request boxes of it before they wait.
__global__ void barrier_kernel() {}

// A warp unpacks a cell, and writes 64 bytes of each output at a time.
template <class U> __global__ void unpack_kernel(PackedLayout layout, const unsigned char* cells, Bf16* to,
                                                 std::int64_t out, std::int64_t in, std::int64_t count) {
  wait_for_previous_kernels();
  const std::int64_t cell = (blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x) / 32, pieces = in / kCellInputs;
  if (cell >= count) return;
  const int lane = int(threadIdx.x) % 32, piece = int(cell % pieces), eight = int(cell / pieces);
  const std::int64_t o = std::int64_t(eight) * kCellOutputs + lane / 4;
  constexpr int kWords = 4 / U::kPairs;  // of 32 inputs
#pragma unroll
  for (int k = 0; k < kCellInputs / 32; ++k) {
    Pair pairs[4];
#pragma unroll
    for (int w = 0; w < kWords; ++w)
      for_pairs<U>(layout, cells + layout.at(piece, eight), k * kWords + w, lane,
                   [&](int i, int, Pair pair) { pairs[w * U::kPairs + i] = pair; });
    const uint4 numbers = eight_inputs(pairs, lane);
    if (o < out) *reinterpret_cast<uint4*>(to + o * in + piece * kCellInputs + k * 32 + lane % 4 * 8) = numbers;
  }
}

// A block writes a row of x.
template <class U>
__global__ void embed_kernel(PackedLayout layout, const unsigned char* cells, const int* tokens, float* x, int width) {
  wait_for_previous_kernels();
  let_next_kernel_start();  // not before: see CudaBackend::reads_early
  const int token = tokens[blockIdx.x];
  float* const to = x + std::int64_t(blockIdx.x) * width;
  if (token < 0) {
    for (int i = int(threadIdx.x); i < width; i += int(blockDim.x)) to[i] = 0;
    return;
  }
  constexpr int kWords = bits_of(U::kCode);
  for (int i = int(threadIdx.x); i < width / kCellInputs * kWords * 4; i += int(blockDim.x)) {
    const int piece = i / (4 * kWords), w = i / 4 % kWords, lane = token % kCellOutputs * 4 + i % 4;
    for_pairs<U>(layout, cells + layout.at(piece, token / kCellOutputs), w, lane, [&](int, int k, Pair pair) {
      const float2 v = widened_pair(pair);
      to[piece * kCellInputs + k] = v.x, to[piece * kCellInputs + k + 1] = v.y;
    });
  }
}

// ---- the host's side ----

std::span<const float> numbers_of(const Tensor& t) { return t ? t.values<float>() : std::span<const float>(); }

bool are_bf16(std::span<const float> scales) {
  return std::ranges::all_of(scales, [](float s) { return float(bf16(s)) == s; });
}
// Whether all scales but 0 are in a range of magnitudes.
bool are_within(std::span<const float> scales, float least, float most) {
  return std::ranges::all_of(scales, [&](float s) { return s == 0 || (std::abs(s) >= least && std::abs(s) <= most); });
}
// Whether the last five bits of all are 0, so that products with integers of as many bits are f32 numbers.
bool are_short(std::span<const float> scales) {
  return std::ranges::all_of(scales, [](float s) { return (std::bit_cast<unsigned>(s) & 31) == 0; });
}
// Whether all scales but 0 and NaN have pairs, where they are at most this.
bool have_pairs(std::span<const float> scales, float most) {
  return std::ranges::all_of(scales, [&](float s) { return std::isnan(s) || are_within({&s, 1}, kLeastPair, most); });
}

struct Choice {
  bool possible = true;
  Code code = Code::int4;
  ScaleForm form = ScaleForm::f32;
  int offset = 0, neutral = 0;  // see Stored
};
Choice of_integers(const Weight& w) {
  const std::span<const float> scales = w.scales.values<float>(), zeros = numbers_of(w.zeros);
  const int bits = w.format->bits();
  Choice c = {.code = bits <= 4 ? Code::int4 : Code::int8};
  c.neutral = 1 << (bits_of(c.code) - 1), c.offset = c.neutral - (1 << (bits - 1));
  const auto are_whole = [&](float least, float most) {
    return std::ranges::all_of(zeros, [&](float z) { return z == std::nearbyint(z) && z >= least && z <= most; });
  };
  const bool four = c.code == Code::int4 && !w.minima;
  if (!w.zeros && !w.minima && are_bf16(scales) && are_within(scales, kLeastScale, kMostScale))
    c.form = ScaleForm::bf16;
  else if (four && are_whole(-kMostZero, kMostZero) && are_bf16(scales) && are_within(scales, kLeastScale, kMostLifted))
    c.form = ScaleForm::bf16_zero;
  else if (four && !w.zeros && have_pairs(scales, kMostLifted))
    c.form = ScaleForm::pair;
  else if (four && are_whole(-8, 8) && have_pairs(scales, kMostLifted) &&
           std::ranges::all_of(scales, [](float s) { return pair_of(s, true).has_value(); }))
    c.form = ScaleForm::pair_zero;
  else if (c.code == Code::int4 && are_whole(-8, 8) && are_within(scales, kLeastScale, kMostLifted) &&
           are_short(scales))
    c.form = ScaleForm::affine;
  else if (c.code == Code::int4 || w.zeros || w.minima)
    c.form = ScaleForm::f32_all;
  return c;
}
Choice choice_of(const Weight& w) {
  const Coding coding = w.format->coding();
  if (coding == Coding::integers) return of_integers(w);
  if (w.zeros || w.minima || (coding == Coding::table && w.format->bits() != 4)) return {.possible = false};
  const std::span<const float> scales = w.scales.values<float>();
  if (coding == Coding::e4m3) {
    const float most = most_scale(Code::e4m3);
    const bool one = are_bf16(scales) && are_within(scales, kLeastScale, most);
    return {.possible = one || have_pairs(scales, most),
            .code = Code::e4m3,
            .form = one ? ScaleForm::bf16 : ScaleForm::pair};
  }
  if (coding == Coding::e2m1 && w.group == Unpack<Code::e2m1, ScaleForm::bf16>::kGroup && are_bf16(scales) &&
      are_within(scales, kLeastScale, most_scale(Code::e2m1)))
    return {.code = Code::e2m1, .form = ScaleForm::bf16};
  return {.code = Code::table, .form = ScaleForm::f32};
}

// i32 [out, in / group, words_of()]. Those of a block of outputs are computed once.
Tensor parts_of(const Weight& w, const Choice& c) {
  const std::int64_t groups = w.in / w.group, words = words_of(c.form);
  const Tensor all = Tensor::host({w.out, groups, words}, DType::i32);
  const auto part = [](const Tensor& t, std::int64_t i) { return t ? t.data<float>()[i] : 0.0f; };
  const auto same = [&](const Tensor& t, std::int64_t i) {  // zeros with their signs
    return std::bit_cast<std::uint32_t>(part(t, i)) == std::bit_cast<std::uint32_t>(part(t, i - groups));
  };
  std::int32_t* to = all.data<std::int32_t>();
  for (std::int64_t i = 0; i < w.out * groups; ++i, to += words)
    if (i >= groups && same(w.scales, i) && same(w.zeros, i) && same(w.minima, i))
      std::copy_n(to - groups * words, words, to);
    else
      std::copy_n(scale_parts(c.code, c.form, part(w.scales, i), part(w.zeros, i), part(w.minima, i)).value().begin(),
                  words, to);
  return all;
}

constexpr int kThreads = 128;
Grid grid_of(std::int64_t cells, bool dependent = false) {
  return {dim3(blocks_for(cells * 32, kThreads)), kThreads, 0, 1, dependent};
}

// What kernels set.
class Flag {
 public:
  explicit Flag(CudaBackend& backend) : backend_(backend), flag_(backend.allocate({1}, DType::i32)) {
    check(cudaMemsetAsync(flag_.raw(), 0, 4, backend.cuda_stream()), "clearing memory");
  }
  int* data() const { return flag_.data<int>(); }
  bool is_set() const {
    const Tensor found = Tensor::host({1}, DType::i32);
    backend_.copy(flag_, found);
    return found.data<int>()[0] != 0;
  }

 private:
  CudaBackend& backend_;
  Tensor flag_;
};

// The cells of a weight, not filled yet; `group`: inputs of a cell that share a scale.
std::shared_ptr<PackedMatrix> empty_cells(CudaBackend& backend, const Weight& w, Code code, ScaleForm form, int group) {
  const auto m = std::make_shared<PackedMatrix>();
  m->out = w.out, m->in = w.in;
  const int eights = int((w.out + 15) / 16 * 2), pieces = int(w.in / kCellInputs);
  m->layout = {code, form, std::countr_zero(unsigned(group)), eights, 0, nullptr};
  m->layout.cell = code_bytes(code) + m->layout.scale_bytes();
  m->cells = backend.allocate({pieces, eights, m->layout.cell}, DType::u8);
  return m;
}

std::shared_ptr<PackedMatrix> packed_sparse(CudaBackend& backend, const Weight& w) {
  if (w.order || w.in % kCellInputs != 0) return nullptr;
  auto m = empty_cells(backend, w, Code::sparse, ScaleForm::bf16, 16);
  const std::int64_t count = m->cells.dim(0) * m->cells.dim(1);
  const Tensor values = backend.upload(w.values), kept = backend.upload(w.kept);
  launch_kernel("prepare", backend.cuda_stream(), grid_of(count), pack_sparse_kernel,
                static_cast<const unsigned*>(values.raw()), static_cast<const std::uint16_t*>(kept.raw()), m->layout,
                m->cells.data<unsigned char>(), w.out, w.in, count);
  return m;
}

}  // namespace

std::shared_ptr<PackedMatrix> packed(CudaBackend& backend, const Weight& w) {
  if (w.kept) return packed_sparse(backend, w);
  const int group = std::min(w.group, kCellInputs);
  if (w.order || w.in % kCellInputs != 0 || w.group % group != 0 || kCellInputs % group != 0) return nullptr;
  const Choice choice = choice_of(w);
  if (!choice.possible || group < 128 / bits_of(choice.code)) return nullptr;  // a word has one scale
  auto m = empty_cells(backend, w, choice.code, choice.form, group);
  m->numbers = backend.upload(Tensor::host_copy(w.format->numbers(), DType::f32));
  m->layout.numbers = m->numbers.data<float>();
  const std::int64_t count = m->cells.dim(0) * m->cells.dim(1);
  const Tensor codes = backend.upload(w.values), parts = backend.upload(parts_of(w, choice));
  const Flag nans(backend);
  const Stored stored{codes.data<std::uint8_t>(),
                      m->layout.numbers,
                      parts.data<unsigned>(),
                      w.out,
                      w.in,
                      w.group,
                      choice.offset,
                      choice.neutral};
  launch_kernel("prepare", backend.cuda_stream(), grid_of(count), pack_kernel, stored, m->layout,
                m->cells.data<unsigned char>(), count, nans.data());
  return nans.is_set() ? nullptr : m;
}

std::shared_ptr<PackedMatrix> in_form(CudaBackend& backend, const PackedMatrix& from, ScaleForm form) {
  if (form == ScaleForm::f32_all) return nullptr;
  const auto m = std::make_shared<PackedMatrix>(from);
  m->routes = nullptr;
  m->layout.form = form, m->layout.cell = code_bytes(m->layout.code) + m->layout.scale_bytes();
  m->cells = backend.allocate({from.cells.dim(0), from.cells.dim(1), m->layout.cell}, DType::u8);
  const std::int64_t count = m->cells.dim(0) * m->cells.dim(1);
  const Flag none(backend);
  launch_kernel("prepare", backend.cuda_stream(), grid_of(count), reform_kernel, from.layout, m->layout, from.data(),
                m->cells.data<unsigned char>(), count, none.data());
  return none.is_set() ? nullptr : m;
}

Tensor unpacked(CudaBackend& backend, const PackedMatrix& m) {
  const Tensor matrix = backend.allocate({m.out, m.in}, DType::bf16);
  const std::int64_t count = (m.out + kCellOutputs - 1) / kCellOutputs * (m.in / kCellInputs);
  with_unpack(m.layout, [&]<class U>(U) {
    launch_kernel("unpacking a matrix", backend.cuda_stream(), grid_of(count, backend.dependent_launch()),
                  unpack_kernel<U>, m.layout, m.data(), matrix.data<Bf16>(), m.out, m.in, count);
  });
  launch_kernel("unpacking a matrix", backend.cuda_stream(), {dim3(1), 32}, barrier_kernel);
  return matrix;
}

void PackedMatrix::embed(CudaBackend& backend, const Tensor& tokens, const Tensor& x) const {
  with_unpack(layout, [&]<class U>(U) {
    launch_kernel("embed", backend.cuda_stream(),
                  {dim3(unsigned(tokens.dim(0))), 256, 0, 1, backend.dependent_launch()}, embed_kernel<U>, layout,
                  data(), tokens.data<int>(), x.data<float>(), int(in));
  });
}

}  // namespace foretoken
