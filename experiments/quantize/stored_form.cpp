#include "experiments/quantize/stored_form.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "framework/model/convert.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Tensors = std::vector<StoredTensor>;

Tensor shape_of(const Weight& w) {
  const std::int64_t shape[] = {w.out, w.in};
  return Tensor::host_copy<std::int64_t>(shape, DType::i64);
}

// Codes of four bits, two in a byte; `first`: the bit at which the first of them is.
Tensor halves_of(const Tensor& codes, const Shape& shape, int first) {
  const Tensor halves = Tensor::host(shape, DType::u8);
  for (std::int64_t i = 0; i < halves.elements(); ++i) {
    const auto* pair = codes.data<std::uint8_t>() + 2 * i;
    halves.data<std::uint8_t>()[i] = std::uint8_t(pair[0] << first | pair[1] << (4 - first));
  }
  return halves;
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

// Zero points f32 [out, groups], absent where all are 0, as codes, packed along the outputs.
Tensor packed_zeros(const Weight& w, int bits) {
  const std::int64_t out = w.out, groups = w.scales.dim(1);
  const Tensor codes = Tensor::host({groups, out}, DType::u8);
  for (std::int64_t o = 0; o < out; ++o)
    for (std::int64_t g = 0; g < groups; ++g)
      codes.row<std::uint8_t>(g)[o] = std::uint8_t((w.zeros ? w.zeros.row<float>(o)[g] : 0) + float(1 << (bits - 1)));
  const Tensor across = packed(codes, bits), to = Tensor::host({across.dim(1), groups}, DType::i32);
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t word = 0; word < to.dim(0); ++word)
      to.row<std::int32_t>(word)[g] = across.row<std::int32_t>(g)[word];
  return to;
}

// weight_packed I32 [out, in * bits / 32]: element i of a row in the bits from i * bits on, as an unsigned integer (the
// number plus 2^(bits - 1)); weight_scale BF16 [out, in / group], weight_shape I64 [2], weight_zero_point I32.
Tensors store_packed(const StoredForm& form, const std::string& module, const Weight& w) {
  const int bits = form.weights["num_bits"];
  Tensors all = {stored_tensor(module + ".weight_packed", packed(w.values, bits)),
                 stored_tensor(module + ".weight_scale", converted(w.scales, DType::bf16)),
                 stored_tensor(module + ".weight_shape", shape_of(w))};
  if (form.weights.contains("symmetric"))
    all.push_back(stored_tensor(module + ".weight_zero_point", packed_zeros(w, bits)));
  return all;
}

// weight I8, weight_scale BF16 [out, 1].
Tensors store_integers(const StoredForm&, const std::string& module, const Weight& w) {
  const Tensor numbers = Tensor::host({w.out, w.in}, DType::i8);
  for (std::int64_t i = 0; i < numbers.elements(); ++i)
    numbers.data<std::int8_t>()[i] = std::int8_t(int(w.values.data<std::uint8_t>()[i]) - 128);
  return {stored_tensor(module + ".weight", numbers),
          stored_tensor(module + ".weight_scale", converted(w.scales, DType::bf16))};
}

// weight F8_E4M3; weight_scale F32, one for each block, or [1].
Tensors store_floats(const StoredForm& form, const std::string& module, const Weight& w) {
  const std::int64_t step = w.format->block(w.out, w.in).outputs, groups = w.in / w.group;
  const Tensor scales = Tensor::host({(w.out + step - 1) / step, groups}, DType::f32);
  for (std::int64_t b = 0; b < scales.dim(0); ++b)
    std::memcpy(scales.row<float>(b), w.scales.row<float>(b * step), std::size_t(groups) * sizeof(float));
  const bool one = form.weights["strategy"] == "tensor";
  return {{module + ".weight", "F8_E4M3", w.values},
          stored_tensor(module + ".weight_scale", one ? scales.reshaped({1}) : scales)};
}

// weight_packed U8 [out, in / 2], the even element in the low half of a byte; weight_scale U8: exponent plus 127.
Tensors store_microscaled(const StoredForm&, const std::string& module, const Weight& w) {
  const Tensor scales = Tensor::host(w.scales.shape(), DType::u8);
  for (std::int64_t i = 0; i < scales.elements(); ++i) {
    const float scale = w.scales.data<float>()[i];  // a power of two; 0 where all numbers are 0
    scales.data<std::uint8_t>()[i] = scale > 0 ? std::uint8_t(std::ilogb(scale) + 127) : 0;
  }
  return {stored_tensor(module + ".weight_packed", halves_of(w.values, {w.out, w.in / 2}, 0)),
          stored_tensor(module + ".weight_scale", scales)};
}

// compressed BF16 [out, in / 2], bitmask U8 [out, (in + 7) / 8], shape I64 [2, 1].
Tensors store_sparse(const StoredForm&, const std::string& module, const Weight& w) {
  return {stored_tensor(module + ".compressed", w.values), stored_tensor(module + ".bitmask", w.kept),
          stored_tensor(module + ".shape", shape_of(w).reshaped({2, 1}))};
}

// weight U8 [out * in / 2, 1]: codes of the matrix row after row, the first of two in the high half of a byte;
// weight.absmax F32, one for each 64 of them; quant_map F32 [16], the number of each code; and the rest as JSON in the
// bytes of quant_state.bitsandbytes__nf4 or ...__fp4.
Tensors store_four_bits(const StoredForm& form, const std::string& module, const Weight& w) {
  constexpr int kBlock = 64;
  if (w.group != kBlock)
    throw Error("the matrix '" + module + "' has " + std::to_string(w.in) +
                " inputs, which do not divide into groups of 64, as bitsandbytes stores " + form.name +
                "; choose another format");
  const std::string name = module + ".weight";
  const std::string state =
      json{{"quant_type", form.name}, {"blocksize", kBlock}, {"dtype", "bfloat16"}, {"shape", {w.out, w.in}}}.dump();
  return {stored_tensor(name, halves_of(w.values, {w.out * w.in / 2, 1}, 4)),
          stored_tensor(name + ".absmax", w.scales.reshaped({w.scales.elements()})),
          stored_tensor(name + ".quant_map", Tensor::host_copy<float>(w.format->numbers(), DType::f32)),
          stored_tensor(name + ".quant_state.bitsandbytes__" + form.name,
                        Tensor::host_copy<char>(std::span<const char>(state), DType::u8))};
}

json bitsandbytes_config(const std::string& type) {
  return {{"quant_method", "bitsandbytes"},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"bnb_4bit_quant_type", type},
          {"bnb_4bit_compute_dtype", "bfloat16"},
          {"bnb_4bit_quant_storage", "uint8"},
          {"bnb_4bit_use_double_quant", false},
          {"llm_int8_skip_modules", {"lm_head"}},
          {"llm_int8_threshold", 6.0},
          {"llm_int8_has_fp16_weight", false},
          {"llm_int8_enable_fp32_cpu_offload", false}};
}

// What compressed-tensors says of a group of modules; `own`: of the weights.
json group_of(const StoredForm& form, const json& own, const std::vector<std::string>& targets,
              const SchemeFacts& facts) {
  json weights = {{"dynamic", false},
                  {"symmetric", true},
                  {"group_size", nullptr},
                  {"block_structure", nullptr},
                  {"actorder", facts.ordered_columns ? json("static") : json()},
                  {"observer", "minmax"},
                  {"observer_kwargs", json::object()}};
  weights.update(own);
  const json inputs = {{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"dynamic", true}, {"strategy", "token"}};
  return {{"weights", weights},
          {"input_activations", facts.rounds_inputs ? inputs : json()},
          {"output_activations", nullptr},
          {"format", form.layout},
          {"targets", targets}};
}

const std::vector<StoredForm>& forms() {
  const auto numbers = [](int bits, const char* type, const char* strategy, const json& more = json::object()) {
    json all = {{"num_bits", bits}, {"type", type}, {"strategy", strategy}};
    all.update(more);
    return all;
  };
  const std::string pack = "pack-quantized", floats = "float-quantized";
  static const std::vector<StoredForm> all = {
      {"int8", "int-quantized", numbers(8, "int", "channel"), store_integers},
      {"int8_group", pack, numbers(8, "int", "group"), store_packed},
      {"int6", pack, numbers(6, "int", "group"), store_packed},
      {"int5", pack, numbers(5, "int", "group"), store_packed},
      {"int4", pack, numbers(4, "int", "group"), store_packed},
      {"int4_asymmetric", pack, numbers(4, "int", "group", {{"symmetric", false}}), store_packed},
      {"fp8", floats, numbers(8, "float", "channel"), store_floats},
      {"fp8_tensor", floats, numbers(8, "float", "tensor"), store_floats},
      {"fp8_block", floats, numbers(8, "float", "block", {{"block_structure", {128, 128}}}), store_floats},
      {"mxfp4", "mxfp4-pack-quantized", numbers(4, "float", "group", {{"scale_dtype", "torch.uint8"}}),
       store_microscaled},
      {"sparse24", "sparse-24-bitmask", {}, store_sparse},
      {"nf4", "bitsandbytes", {}, store_four_bits},
      {"fp4", "bitsandbytes", {}, store_four_bits}};
  return all;
}

}  // namespace

json StoredForm::config(const std::map<std::string, int>& groups, const SchemeFacts& facts) const {
  if (layout == "bitsandbytes") return bitsandbytes_config(name);
  json all = {{"quant_method", "compressed-tensors"}, {"format", layout},
              {"quantization_status", "compressed"},  {"global_compression_ratio", nullptr},
              {"kv_cache_scheme", nullptr},           {"ignore", {"lm_head"}},
              {"config_groups", json::object()}};
  if (weights.is_null()) {
    all["sparsity_config"] = {{"format", layout},
                              {"sparsity_structure", "2:4"},
                              {"global_sparsity", 0.5},
                              {"targets", {"Linear"}},
                              {"ignore", {"lm_head"}}};
    all.update({{"format", "dense"}, {"ignore", json::array()}});
    return all;
  }
  // One group of all linear layers where their groups are of one size; else one for each size, which names its modules.
  const bool grouped = weights["strategy"] == "group";
  std::map<int, std::vector<std::string>> modules;
  for (const auto& [module, size] : groups) modules[grouped ? size : 0].push_back(module);
  json& listed = all["config_groups"];
  for (auto& [size, names] : modules) {
    json own = weights;
    if (grouped) own["group_size"] = size;
    if (modules.size() == 1) names = {"Linear"};
    listed["group_" + std::to_string(listed.size())] = group_of(*this, own, names, facts);
  }
  return all;
}

const StoredForm& stored_form(const std::string& format) {
  const auto found = std::ranges::find(forms(), format, &StoredForm::name);
  if (found != forms().end()) return *found;
  std::vector<std::string> names;  // in the order of the formats
  for (const WeightFormat* f : weight_formats())
    if (std::ranges::find(forms(), f->name(), &StoredForm::name) != forms().end()) names.push_back(f->name());
  unknown_name("format", format, names);
}

}  // namespace foretoken
