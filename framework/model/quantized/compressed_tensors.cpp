// compressed-tensors (vLLM's llm-compressor). pack-quantized: MODULE.weight_packed I32 [out, in * bits / 32], integers
// plus 2^(bits - 1) along the inputs (those of 5 and 6 bits cross words), weight_shape; int-quantized: MODULE.weight
// I8; float-quantized: MODULE.weight F8_E4M3; mxfp4-pack-quantized: weight_packed U8 [out, in / 2]. weight_scale [1],
// [out, 1], [out, groups] or one number for each block. weight_zero_point I8 like the scales, or in 32-bit words along
// the outputs. w = scale * (number - zero). sparse-24-bitmask: MODULE.compressed BF16 [out, in / 2], the two numbers
// that each four inputs have, MODULE.bitmask U8 [out, (in + 7) / 8], a bit for each input from the lowest on,
// MODULE.shape.
#include <algorithm>
#include <bit>
#include <cmath>

#include "framework/model/in_parallel.h"
#include "framework/model/quantized/compressed_scheme.h"
#include "framework/model/quantized/methods.h"
#include "framework/model/quantized/microscaling.h"
#include "framework/model/quantized/settings.h"
#include "framework/model/quantized/unpacking.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"
#include "kernels/formats/formats.h"

namespace foretoken {
namespace {

using Layout = CompressedScheme::Layout;
using Strategy = CompressedScheme::Strategy;

class CompressedTensors final : public Quantization {
 public:
  explicit CompressedTensors(const Fields& settings);

  std::string method() const override { return "compressed-tensors"; }
  std::vector<Activations> schemes() const override;
  std::vector<std::string> marks() const override {
    if (sparse_) return {"compressed"};
    return {"weight_packed", "weight_scale"};
  }
  std::vector<std::string> other_parts() const override {
    if (sparse_) return {"bitmask", "shape"};
    return {"weight_zero_point", "weight_shape", "input_scale", "input_zero_point"};
  }
  bool excludes(const std::string& module) const override { return ignored_.match(module) > 0; }
  bool covers(const std::string& module) const override {
    return !excludes(module) &&
           std::ranges::any_of(schemes_, [&](const CompressedScheme& s) { return s.targets.match(module) > 0; });
  }
  Weight unpack(const Parts& parts) const override;

 private:
  const CompressedScheme& scheme_of(const Parts& parts) const;

  void read_sparse(const Fields& settings);

  std::string where_;    // the settings are
  bool sparse_ = false;  // 2:4, which no group quantizes
  std::vector<CompressedScheme> schemes_;
  ModuleTargets ignored_;
};

void refuse_transforms(const Fields& settings) {
  refuse_cache_scheme(settings);
  expect_empty(settings, "transform_config",
               "transforms of matrices are not supported; choose a checkpoint without them");
  expect_empty(settings, "moe_sparsity_config", "sparsity is not supported; choose a checkpoint without it");
  // Early releases left "frozen", the status before, in checkpoints that they compressed.
  if (const std::string status = settings.string_or("quantization_status", "compressed");
      status != "compressed" && status != "frozen")
    settings.refuse("quantization_status",
                    "the supported ones are \"compressed\" and \"frozen\"; save the model compressed");
}

// The format of "sparsity_config", "dense" where there is none.
std::string sparsity_of(const Fields& settings) {
  const auto* sparsity = settings.find("sparsity_config");
  if (!sparsity || sparsity->empty()) return "dense";
  const nlohmann::json format = sparsity->is_object() ? sparsity->value("format", nlohmann::json()) : nlohmann::json();
  if (format != "dense" && format != "sparse-24-bitmask")
    settings.refuse("sparsity_config",
                    "the supported sparsity has the format \"sparse-24-bitmask\"; choose a checkpoint of it, or one "
                    "without sparsity");
  return format;
}

void CompressedTensors::read_sparse(const Fields& settings) {
  if (const auto* groups = settings.find("config_groups"); groups && !groups->empty())
    settings.refuse("sparsity_config",
                    "2:4 matrices that are quantized as well are not supported; choose a checkpoint of one of them");
  const Fields sparsity = settings.object("sparsity_config");
  sparse_ = true, ignored_ = ModuleTargets(sparsity, "ignore");
  schemes_.push_back(CompressedScheme::read_sparse(sparsity));
}

CompressedTensors::CompressedTensors(const Fields& settings) : where_(settings.where()), ignored_(settings, "ignore") {
  refuse_transforms(settings);
  if (sparsity_of(settings) != "dense") {
    read_sparse(settings);
    return;
  }
  const Fields groups = settings.object("config_groups");
  const std::string format = settings.string_or("format", "");
  for (const auto& [name, group] : groups.all().items())
    schemes_.push_back(CompressedScheme::read(groups.object(name.c_str()), format));
  if (schemes_.empty()) settings.refuse("config_groups", "names no group; choose another checkpoint");
}

std::vector<Activations> CompressedTensors::schemes() const {
  std::vector<Activations> all;
  for (const CompressedScheme& s : schemes_) all.push_back(s.activations);
  return all;
}

// The one that names the module most exactly. Which of two equal ones counts depends on the order of the file, which
// JSON does not keep.
const CompressedScheme& CompressedTensors::scheme_of(const Parts& parts) const {
  const CompressedScheme* best = nullptr;
  bool twice = false;
  for (const CompressedScheme& s : schemes_) {
    const int match = s.targets.match(parts.module()), before = best ? best->targets.match(parts.module()) : 0;
    if (match == 0 || match < before) continue;
    twice = match == before, best = &s;
  }
  if (!best || twice)
    throw Error(where_ + ": the matrix '" + parts.module() + "' is quantized, but " +
                (twice ? "several groups of quantization_config name it equally exactly"
                       : "no group of quantization_config names it") +
                "; correct the targets");
  return *best;
}

// The shape of weight_scale, and the block of the matrix that one of them belongs to.
struct Grid {
  Shape shape;
  std::int64_t block_outputs, block_inputs;
};

Grid grid_of(const Parts& parts, const CompressedScheme& s) {
  switch (s.strategy) {
    case Strategy::tensor:
      return {{1}, parts.out, parts.in};
    case Strategy::channel:
      return {{parts.out, 1}, 1, parts.in};
    case Strategy::group:
      parts.expect_groups(s.group, "group_size");
      return {{parts.out, parts.in / s.group}, 1, s.group};
    case Strategy::block:
      break;
  }
  return {{(parts.out + s.block_outputs - 1) / s.block_outputs, (parts.in + s.block_inputs - 1) / s.block_inputs},
          s.block_outputs,
          s.block_inputs};
}

// Early releases let no integer of 5 or 6 bits cross words.
void refuse_padded_words(const Parts& parts, const CompressedScheme& s) {
  const std::int64_t in_a_word = 32 / s.bits, padded = (parts.in + in_a_word - 1) / in_a_word;
  if (32 % s.bits == 0 || padded == (parts.in * s.bits + 31) / 32) return;
  if (const Tensor words = parts.any("weight_packed"); words.shape() == Shape{parts.out, padded})
    parts.refuse("weight_packed", "is " + words.shape().text() +
                                      ", the layout of early releases of compressed-tensors (" +
                                      std::to_string(in_a_word) + " integers of " + std::to_string(s.bits) +
                                      " bits a word), which is not supported; quantize anew with a later release");
}

void expect_shape(const Parts& parts, const std::string& part, const Shape& of_shape) {
  const Tensor shape = parts.of(part, DType::i64, of_shape);
  if (shape.data<std::int64_t>()[0] != parts.out || shape.data<std::int64_t>()[1] != parts.in)
    parts.refuse(part, "says " + Shape{shape.data<std::int64_t>()[0], shape.data<std::int64_t>()[1]}.text() +
                           ", but config.json requires " + Shape{parts.out, parts.in}.text() +
                           "; they belong to different checkpoints: download both again");
}

Weight unpack_words(const Parts& parts, const CompressedScheme& s) {
  refuse_padded_words(parts, s);
  const Tensor words = parts.of("weight_packed", DType::i32, {parts.out, (parts.in * s.bits + 31) / 32});
  expect_shape(parts, "weight_shape", {2});
  Weight w = unpacking::empty(parts, s.format());
  in_parallel(w.out, w.in, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o)
      for (std::int64_t i = 0; i < w.in; ++i)
        w.values.row<std::uint8_t>(o)[i] = unpacking::packed(words.row<std::int32_t>(o), i, s.bits);
  });
  return w;
}

// f32 in the shape of the scales; absent where all are 0.
Tensor zeros_of(const Parts& parts, const CompressedScheme& s, const Shape& shape) {
  const char* part = "weight_zero_point";
  if (!parts.has(part)) {
    if (!s.symmetric) parts.refuse(part, "is missing, though quantization_config is not symmetric; download it again");
    return {};
  }
  const Tensor zeros = Tensor::host(shape, DType::f32);
  const int offset = 1 << (s.bits - 1);
  if (s.layout == Layout::packed && parts.any(part).dtype() == DType::i32) {
    const std::int64_t columns = shape[1];
    const Tensor words = parts.of(part, DType::i32, {(parts.out * s.bits + 31) / 32, columns});
    for (std::int64_t o = 0; o < parts.out; ++o)
      for (std::int64_t g = 0; g < columns; ++g)
        zeros.row<float>(o)[g] =
            float(int(unpacking::packed(words.data<std::int32_t>() + g, o, s.bits, columns)) - offset);
  } else {
    const Tensor stored = parts.of(part, DType::i8, shape);
    for (std::int64_t i = 0; i < stored.elements(); ++i) {
      const std::int8_t zero = stored.data<std::int8_t>()[i];
      if (zero < -offset || zero >= offset)
        parts.refuse(part, "holds " + std::to_string(int(zero)) + ", beyond integers of " + std::to_string(s.bits) +
                               " bits; download the checkpoint again, or quantize anew");
      zeros.data<float>()[i] = float(zero);
    }
  }
  if (unpacking::all_zero(zeros)) return {};
  if (s.symmetric)
    parts.refuse(part,
                 "holds zero points other than 0, though quantization_config is symmetric; correct 'symmetric' in "
                 "config.json, or download both again");
  return zeros;
}

Weight unpack_sparse(const Parts& parts) {
  parts.expect_groups(4, "sparsity_config");
  expect_shape(parts, "shape", {2, 1});
  Weight w;
  w.out = parts.out, w.in = parts.in, w.format = &formats::sparse24(), w.group = 4;
  w.values = parts.of("compressed", DType::bf16, {parts.out, parts.in / 2});
  w.kept = parts.of("bitmask", DType::u8, {parts.out, (parts.in + 7) / 8});
  if (!std::ranges::all_of(w.values.values<bf16>(), [](bf16 v) { return std::isfinite(float(v)); }))
    parts.refuse("compressed", "holds a NaN or an infinity; download the checkpoint again, or prune anew");
  for (std::int64_t o = 0; o < w.out; ++o)
    for (std::int64_t k = 0; k < w.in; k += 4)
      if (std::popcount(unsigned(w.kept.row<std::uint8_t>(o)[k / 8] >> k % 8) & 15u) != 2)
        parts.refuse("bitmask", "does not name two of each four inputs; download the checkpoint again, or prune anew");
  for (std::int64_t o = 0; w.in % 8 != 0 && o < w.out; ++o)
    if (w.kept.row<std::uint8_t>(o)[w.in / 8] >> 4 != 0)
      parts.refuse("bitmask", "has bits behind the last input; download the checkpoint again, or prune anew");
  return w;
}

Weight unpack_codes(const Parts& parts, const CompressedScheme& s) {
  if (s.layout == Layout::sparse) return unpack_sparse(parts);
  const Grid grid = grid_of(parts, s);
  if (s.layout == Layout::microscaling)
    return microscaling::unpack(parts, parts.of("weight_packed", DType::u8, {parts.out, parts.in / 2}), "weight_scale");
  Weight w;
  if (s.layout == Layout::packed) {
    w = unpack_words(parts, s);
  } else if (s.layout == Layout::integers) {
    w = unpacking::of_signed(parts, s.format(), parts.of("weight", DType::i8, {parts.out, parts.in}));
  } else {
    w = unpacking::empty(parts, s.format());
    w.values = unpacking::e4m3_codes(parts, "weight");
  }
  const float most = unpacking::greatest(s.format(), !s.symmetric);
  unpacking::set_scales(w, parts.numbers("weight_scale", grid.shape, most), grid.block_outputs, grid.block_inputs);
  if (const Tensor zeros = zeros_of(parts, s, grid.shape))
    w.zeros = unpacking::expanded(zeros, w.out, w.in, grid.block_outputs, grid.block_inputs).values;
  return w;
}

Weight CompressedTensors::unpack(const Parts& parts) const {
  const CompressedScheme& s = scheme_of(parts);
  return with_rounded_inputs(unpack_codes(parts, s), parts, s.activations);
}

}  // namespace

std::shared_ptr<const Quantization> read_compressed_tensors(const Fields& settings) {
  return std::make_shared<CompressedTensors>(settings);
}

}  // namespace foretoken
