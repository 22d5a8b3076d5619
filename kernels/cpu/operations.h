// What one instruction set offers: a table of functions over plain pointers. Files that are compiled for wide
// instructions include this and nothing with inline functions: otherwise the linker might pick such a function for the
// whole program.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/distribution.h"  // DistributionRow, Warp: types only

namespace foretoken {

constexpr int kPanel = 32;         // adjacent outputs in a packed weight
constexpr int kAttendTile = 256;   // slots of one softmax tile; tiles are combined afterwards
constexpr int kMaxQueries = 24;    // (row, head) pairs that share the loads of keys and values
constexpr int kMaxHeadSize = 576;  // that of DeepSeek's latents, with the rotated numbers beside them

// The memory layout of a weight. Panels of 32 outputs; in a panel, input by input: [panels][inputs][32] for f32,
// [panels][inputs / 2][32][2] for bf16, so that 64 bytes are 16 outputs x 2 inputs. Outputs and inputs are padded
// with 0.
// Of a format's codes: see Codes.
// sparse: two of each four inputs stay: [panels][inputs / 8] of [2][32] pairs of bf16 numbers, one for each four
// inputs, and [32] bytes, of which bit i is set where input i has a number. sparse_octets: [panels][chunks][4][inputs
// of the chunk / 8] of [8][2] such pairs and [8] such bytes.
// *_octets: what bf16 dot products read, eight inputs of an output together, of eight outputs (a strip), in chunks of
// kOctetChunk inputs of a panel (the last is what remains): [panels][chunks][4][inputs of the chunk / 8][8][8], of bf16
// numbers or codes of e4m3; of integers of up to 8 bits, of which 128 means 0, the last 8 x 8 in the order [output % 2]
// [input][output / 2]; of codes of 4 bits: [panels][chunks][4][inputs / 32][8][8] words of 16 bits, of which word j
// holds inputs j, 8 + j, 16 + j and 24 + j, from the lowest bits on.
enum class Packing : std::uint8_t {
  f32,
  bf16,
  codes4,
  integers8,
  quads8,
  e4m3,
  sparse,
  bf16_octets,
  codes4_octets,
  integers8_octets,
  e4m3_octets,
  sparse_octets,
  quads4
};
constexpr int kPackings = 13;
constexpr int kSparsePairs = kPanel * 4, kSparseEight = 2 * kSparsePairs + kPanel;  // bytes of four and eight inputs

constexpr int kStrip = 8, kOctetInputs = 8;
constexpr std::int64_t kOctetChunk = 512;  // with ten rows of x in the L1 cache

constexpr int kBlockInputs = 32;            // inputs of a block of codes of 4 bits, which divides a group
constexpr std::int64_t kCodesAhead = 4096;  // bytes by which codes are prefetched

// A quantized weight: panels of 32 outputs. Codes of 4 bits: [panels][inputs / 32][32][16] bytes, of which byte j holds
// input j in its lower and input 16 + j in its upper half; of up to 8 bits: [panels][inputs][32]; integers that
// multiply rounded inputs, quads8: [panels][groups][padded / 4][32][4], see RoundedInputs, and of 4 bits, quads4:
// [panels][inputs / 8][32][4], of which byte j holds input j in its lower and input 4 + j in its upper half. The weight
// is bf16(scale * (number - zero) - minimum), each operation rounded (kernels/formats/format.h).
struct Codes {
  const std::byte* codes;  // of 2:4 weights, which have no more than these: sparse
  const float* numbers;    // by code; codes of 4 bits alone
  // [panels][groups][32]; null: 0. Scales of e4m3 are times 2^8.
  const float *scales, *zeros, *minima;
  float half;  // integers: code c is c - half
  // Of 8 bits: integers without minima, and scales of at most 15 significant bits within 2^-100 ... 2^100, or 0.
  bool exact;
  int groups, group;
  std::int64_t inputs;
};

// Rounded inputs (kernels/formats/activations/activation_format.h), whose numbers are Product::x:
// [rows][groups][padded], where a group is padded with zeros to a multiple of four. Integers: bytes where byte_quads
// applies, else of 16 bits, of each four inputs in the order 0, 2, 1, 3; e4m3: as the inputs of a product are.
struct RoundedInputs {
  const float* scales;       // [rows]
  const std::int32_t* sums;  // of the numbers, [rows][groups]; integers
};

// y [rows, out] (+)= x [rows, inputs] W^T for some panels of W. Each output of each row has accumulators of its own,
// one (of octets: four) that add the inputs in order, so a row's bits depend neither on other rows nor on which thread
// has which panel.
struct Product {
  const void* weights;  // of a dense weight
  Codes codes;          // of a quantized one
  const void* x;        // [rows, inputs]: bf16 where rounds_to_bf16 applies, else f32
  float* y;
  std::int64_t x_stride, y_stride, rows, inputs, out;
  bool accumulate;    // y +=
  std::int64_t next;  // bytes from a panel to the one that is used next
  RoundedInputs rounded;
};

// Numbers of a cache; of int8 and e4m3, codes with a scale for each slot and head.
enum class CacheNumbers : std::uint8_t { f32, bf16, int8, e4m3 };

// One layer's attention for rows that share a block table. Slots are visited by depth: the visible prefix, then the
// ancestors. So a node of a tree has the same bits as the last token of its path, run as a chain.
struct Attention {
  const float* q;
  float* y;
  std::int64_t q_stride, y_stride;
  const std::byte* pool;
  std::int64_t page_bytes, keys, values;
  std::int64_t key_scales, value_scales;                         // f32 [kv_heads, page_rows]
  int page_rows, kv_heads, head_size, value_size, heads, words;  // sizes of a key (and query) and of a value
  CacheNumbers numbers;
  bool scaled;             // there are scales
  std::int64_t row_bytes;  // from a key to the next, and from a value to the next
  float scale, softcap;    // AttentionRules
  const float* sinks;      // likewise, [heads]; null: there are none
  const std::int32_t* owner;
  const std::int32_t* visible;
  const std::int32_t* first;  // null: 0
  const std::uint64_t* ancestors;
  std::int64_t ancestors_stride;
  const std::int32_t* tables;
  std::int64_t tables_stride;
  bool head_tables;  // table s * kv_heads + h is that of kv head h of sequence s
  const std::int32_t* table_of(int sequence, int kv_head) const {
    return tables + (head_tables ? sequence * kv_heads + kv_head : sequence) * tables_stride;
  }
};

struct Operations {
  const char* name;
  bool rounds_to_bf16;  // products take x in bf16, and weights in octets; those of f32 weights do neither
  void (*product[kPackings])(const Product&, std::int64_t begin_panel, std::int64_t end_panel);  // by Packing
  bool byte_quads;                                                                               // see RoundedInputs
  void (*rounded_product[kPackings])(const Product&, std::int64_t begin_panel, std::int64_t end_panel);  // of codes
  void (*to_bf16)(const float* x, std::uint16_t* y, std::int64_t n);  // null unless rounds_to_bf16
  void (*from_bf16)(const std::uint16_t* x, float* y, std::int64_t n);
  void (*narrow)(const float* x, std::uint16_t* y, std::int64_t n);  // the bits of bf16(float)
  void (*rms_norm)(const float* x, const float* gain, float epsilon, float* y, std::int64_t n);
  void (*silu_mul)(const float* gate, const float* up, float* y, std::int64_t n);
  void (*gelu_mul)(const float* gate, const float* up, float* y, std::int64_t n);
  void (*clamped_mul)(const float* gate, const float* up, float slope, float limit, float* y, std::int64_t n);
  void (*softcap)(float* x, float cap, std::int64_t n);
  void (*silu_add)(float* x, const float* y, std::int64_t n);
  void (*add)(float* x, const float* y, std::int64_t n);
  // Numbers of formats::int8_rows, and their scale.
  float (*integers_of_row)(const float* x, std::int64_t n, float input_scale, std::int8_t* numbers);
  // One head: rotates the pairs x[i], x[i + half] by the angles of these cosines and sines.
  void (*rotate)(float* x, const float* cosine, const float* sine, int half);
  // Query heads [head, head + heads) of rows [row, row + rows): at most kMaxQueries pairs of one kv head, one owner.
  void (*attend)(const Attention&, int row, int rows, int head, int heads);
  // The bits of normalize(); scratch [vocab].
  void (*distribution_row)(const float* logits, int vocab, const Warp& warp, float* scratch, DistributionRow* row);
  // p[i] = distribution(begin + i) for i < n <= kTile; returns tile_sum of it, bit for bit. No one-hot distributions.
  double (*distribution_tile)(const float* logits, const DistributionRow& row, int begin, int n, double* p);
  double (*read)(const void* data, std::int64_t bytes);  // reads all of it, to measure bandwidth
  double (*multiply_add)(std::int64_t steps);  // runs steps * operations_per_step operations, to measure the peak
  double operations_per_step;
};

const Operations& operations_scalar();
const Operations& operations_avx2();
const Operations& operations_avx512();
const Operations& operations_avx512vnni();
const Operations& operations_avx512bf16();
const Operations& operations_amx();

}  // namespace foretoken
