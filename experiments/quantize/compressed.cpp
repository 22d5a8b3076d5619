// compressed-tensors. pack-quantized: MODULE.weight_packed I32 [out, in * bits / 32], element i of a row in the bits
// from i * bits on, as an unsigned integer (the number plus 2^(bits - 1)), weight_scale BF16 [out, in / group],
// weight_shape I64 [2], weight_zero_point I32, packed likewise along the outputs. int-quantized: weight I8,
// weight_scale BF16 [out, 1]. float-quantized: weight F8_E4M3, weight_scale F32. mxfp4-pack-quantized: weight_packed U8
// [out, in / 2], the even element in the low half of a byte, weight_scale U8: exponent plus 127. sparse-24-bitmask:
// compressed BF16 [out, in / 2], bitmask U8 [out, (in + 7) / 8], shape I64 [2, 1].
#include <cmath>
#include <cstring>
#include <set>

#include "experiments/quantize/stored_form.h"
#include "framework/model/convert.h"

namespace foretoken::stored {
namespace {

using nlohmann::json;

Tensor shape_of(const Weight& w) {
  const std::int64_t shape[] = {w.out, w.in};
  return Tensor::host_copy<std::int64_t>(shape, DType::i64);
}

// [rows, columns] of codes, packed along the columns.
Tensor packed(const Tensor& codes, int bits) {
  const std::int64_t words = (codes.dim(1) * bits + 31) / 32;
  const Tensor to = Tensor::host({codes.dim(0), words}, DType::i32);
  std::memset(to.raw(), 0, std::size_t(to.bytes()));
  for (std::int64_t o = 0; o < codes.dim(0); ++o) {
    const auto* from = codes.row<std::uint8_t>(o);
    auto* row = reinterpret_cast<std::uint32_t*>(to.row<std::int32_t>(o));
    for (std::int64_t i = 0; i < codes.dim(1); ++i) {
      const std::int64_t bit = i * bits;
      row[bit / 32] |= std::uint32_t(from[i]) << bit % 32;
      if (bit % 32 + bits > 32) row[bit / 32 + 1] |= std::uint32_t(from[i]) >> (32 - bit % 32);
    }
  }
  return to;
}

// Zero points f32 [out, groups] as codes, packed along the outputs.
Tensor packed_zeros(const Tensor& zeros, int bits) {
  const std::int64_t out = zeros.dim(0), groups = zeros.dim(1);
  const Tensor codes = Tensor::host({groups, out}, DType::u8);
  for (std::int64_t o = 0; o < out; ++o)
    for (std::int64_t g = 0; g < groups; ++g)
      codes.row<std::uint8_t>(g)[o] = std::uint8_t(zeros.row<float>(o)[g] + float(1 << (bits - 1)));
  const Tensor across = packed(codes, bits), to = Tensor::host({across.dim(1), groups}, DType::i32);
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t w = 0; w < to.dim(0); ++w) to.row<std::int32_t>(w)[g] = across.row<std::int32_t>(g)[w];
  return to;
}

// What all schemes say of a group of modules; `weights` is completed by each.
json group_of(const json& weights, const std::vector<std::string>& targets, const std::string& format,
              const SchemeFacts& facts) {
  json all = {{"dynamic", false},
              {"symmetric", true},
              {"group_size", nullptr},
              {"block_structure", nullptr},
              {"actorder", facts.ordered_columns ? json("static") : json()},
              {"observer", "minmax"},
              {"observer_kwargs", json::object()}};
  all.update(weights);
  const json inputs = {{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"dynamic", true}, {"strategy", "token"}};
  return {{"weights", all},
          {"input_activations", facts.rounds_inputs ? inputs : json()},
          {"output_activations", nullptr},
          {"format", format},
          {"targets", targets}};
}

class Compressed : public StoredForm {
 public:
  Compressed(std::string layout, json weights) : layout_(std::move(layout)), weights_(std::move(weights)) {}

  // One group of all linear layers where their groups are of one size; else one for each size, which names its modules.
  json config(const std::map<std::string, int>& groups, const SchemeFacts& facts) const override {
    std::map<int, std::vector<std::string>> modules;
    for (const auto& [module, size] : groups) modules[grouped() ? size : 0].push_back(module);
    json all = json::object();
    for (auto& [size, names] : modules) {
      json weights = weights_;
      if (grouped()) weights["group_size"] = size;
      if (modules.size() == 1) names = {"Linear"};
      all["group_" + std::to_string(all.size())] = group_of(weights, names, layout_, facts);
    }
    return {{"quant_method", "compressed-tensors"},
            {"format", layout_},
            {"quantization_status", "compressed"},
            {"global_compression_ratio", nullptr},
            {"kv_cache_scheme", nullptr},
            {"ignore", {"lm_head"}},
            {"config_groups", all}};
  }

 protected:
  bool grouped() const { return weights_.at("strategy") == "group"; }

 private:
  std::string layout_;
  json weights_;
};

class Packed final : public Compressed {
 public:
  Packed(int bits, bool symmetric)
      : Compressed("pack-quantized",
                   {{"num_bits", bits}, {"type", "int"}, {"strategy", "group"}, {"symmetric", symmetric}}),
        bits_(bits),
        symmetric_(symmetric) {}
  std::vector<StoredTensor> tensors(const std::string& module, const Weight& w) const override {
    std::vector<StoredTensor> all = {stored_tensor(module + ".weight_packed", packed(w.values, bits_)),
                                     stored_tensor(module + ".weight_scale", converted(w.scales, DType::bf16)),
                                     stored_tensor(module + ".weight_shape", shape_of(w))};
    if (symmetric_) return all;
    Tensor zeros = w.zeros;
    if (!zeros) {
      zeros = Tensor::host(w.scales.shape(), DType::f32);
      std::memset(zeros.raw(), 0, std::size_t(zeros.bytes()));
    }
    all.push_back(stored_tensor(module + ".weight_zero_point", packed_zeros(zeros, bits_)));
    return all;
  }

 private:
  int bits_;
  bool symmetric_;
};

class Integers8 final : public Compressed {
 public:
  Integers8() : Compressed("int-quantized", {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}}) {}
  std::vector<StoredTensor> tensors(const std::string& module, const Weight& w) const override {
    const Tensor numbers = Tensor::host({w.out, w.in}, DType::i8);
    for (std::int64_t i = 0; i < numbers.elements(); ++i)
      numbers.data<std::int8_t>()[i] = std::int8_t(int(w.values.data<std::uint8_t>()[i]) - 128);
    return {stored_tensor(module + ".weight", numbers),
            stored_tensor(module + ".weight_scale", converted(w.scales, DType::bf16))};
  }
};

// A scale for each `outputs` rows and each group of inputs; 0: one for all rows.
class Floats8 final : public Compressed {
 public:
  Floats8(const json& weights, int outputs) : Compressed("float-quantized", weights), outputs_(outputs) {}
  std::vector<StoredTensor> tensors(const std::string& module, const Weight& w) const override {
    const std::int64_t step = outputs_ > 0 ? outputs_ : w.out, groups = w.in / w.group;
    const Tensor scales = Tensor::host({(w.out + step - 1) / step, groups}, DType::f32);
    for (std::int64_t b = 0; b < scales.dim(0); ++b)
      std::memcpy(scales.row<float>(b), w.scales.row<float>(b * step), std::size_t(groups) * sizeof(float));
    return {{module + ".weight", "F8_E4M3", w.values},
            stored_tensor(module + ".weight_scale", outputs_ > 0 ? scales : scales.reshaped({1}))};
  }

 private:
  int outputs_;
};

class Microscaled final : public Compressed {
 public:
  Microscaled()
      : Compressed("mxfp4-pack-quantized",
                   {{"num_bits", 4}, {"type", "float"}, {"strategy", "group"}, {"scale_dtype", "torch.uint8"}}) {}
  std::vector<StoredTensor> tensors(const std::string& module, const Weight& w) const override {
    const Tensor halves = Tensor::host({w.out, w.in / 2}, DType::u8),
                 scales = Tensor::host(w.scales.shape(), DType::u8);
    for (std::int64_t i = 0; i < halves.elements(); ++i) {
      const auto* codes = w.values.data<std::uint8_t>() + 2 * i;
      halves.data<std::uint8_t>()[i] = std::uint8_t(codes[0] | codes[1] << 4);
    }
    for (std::int64_t i = 0; i < scales.elements(); ++i) {
      const float scale = w.scales.data<float>()[i];  // a power of two; 0 where all numbers are 0
      scales.data<std::uint8_t>()[i] = scale > 0 ? std::uint8_t(std::ilogb(scale) + 127) : 0;
    }
    return {stored_tensor(module + ".weight_packed", halves), stored_tensor(module + ".weight_scale", scales)};
  }
};

class Sparse final : public StoredForm {
 public:
  std::vector<StoredTensor> tensors(const std::string& module, const Weight& w) const override {
    return {stored_tensor(module + ".compressed", w.values), stored_tensor(module + ".bitmask", w.kept),
            stored_tensor(module + ".shape", shape_of(w).reshaped({2, 1}))};
  }
  json config(const std::map<std::string, int>&, const SchemeFacts&) const override {
    const json sparsity = {{"format", "sparse-24-bitmask"},
                           {"sparsity_structure", "2:4"},
                           {"global_sparsity", 0.5},
                           {"targets", {"Linear"}},
                           {"ignore", {"lm_head"}}};
    return {{"quant_method", "compressed-tensors"}, {"format", "dense"},          {"quantization_status", "compressed"},
            {"global_compression_ratio", nullptr},  {"kv_cache_scheme", nullptr}, {"ignore", json::array()},
            {"config_groups", json::object()},      {"sparsity_config", sparsity}};
  }
};

}  // namespace

const std::map<std::string, const StoredForm*>& compressed_tensors() {
  static const Packed int8_group(8, true), int6(6, true), int5(5, true), int4(4, true), int4_asymmetric(4, false);
  static const Integers8 int8;
  const json float8 = {{"num_bits", 8}, {"type", "float"}};
  const auto with = [&](const json& more) {
    json all = float8;
    all.update(more);
    return all;
  };
  static const Floats8 fp8(with({{"strategy", "channel"}}), 1), fp8_tensor(with({{"strategy", "tensor"}}), 0),
      fp8_block(with({{"strategy", "block"}, {"block_structure", {128, 128}}}), 128);
  static const Microscaled mxfp4;
  static const Sparse sparse24;
  static const std::map<std::string, const StoredForm*> all = {{"int8", &int8},
                                                               {"int8_group", &int8_group},
                                                               {"int6", &int6},
                                                               {"int5", &int5},
                                                               {"int4", &int4},
                                                               {"int4_asymmetric", &int4_asymmetric},
                                                               {"fp8", &fp8},
                                                               {"fp8_tensor", &fp8_tensor},
                                                               {"fp8_block", &fp8_block},
                                                               {"mxfp4", &mxfp4},
                                                               {"sparse24", &sparse24}};
  return all;
}

}  // namespace foretoken::stored
