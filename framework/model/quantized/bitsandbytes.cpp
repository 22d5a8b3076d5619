// bitsandbytes. Of 4 bits (QLoRA, arXiv 2305.14314): MODULE.weight U8, codes of the matrix row by row, two a byte with
// the upper nibble first; weight.absmax, a scale for each `blocksize` of them; weight.quant_map, the numbers of the
// codes; weight.quant_state.bitsandbytes__nf4 (or fp4), the rest as JSON. Double quantization stores absmax as U8 codes
// of weight.nested_quant_map: scale = map[code] * nested_absmax[code / nested_blocksize] + nested_offset.
// Of 8 bits (LLM.int8, arXiv 2208.07339): MODULE.weight I8 [out, in] and SCB f32 [out]: w = SCB / 127 * number.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "framework/model/in_parallel.h"
#include "framework/model/quantized/methods.h"
#include "framework/model/quantized/module_names.h"
#include "framework/model/quantized/unpacking.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"
#include "kernels/formats/formats.h"

namespace foretoken {
namespace {

constexpr int kMostBlock = 1 << 24;

class Int8 final : public Quantization {
 public:
  explicit Int8(const Fields& settings)
      : outliers_(settings.has("llm_int8_threshold") && settings.all()["llm_int8_threshold"] == 0
                      ? 0
                      : settings.positive_or("llm_int8_threshold", 6)),
        excluded_(settings, "llm_int8_skip_modules") {
    if (settings.boolean_or("llm_int8_has_fp16_weight", false))
      settings.refuse("llm_int8_has_fp16_weight", "only false is supported; choose a checkpoint of it");
  }
  std::string method() const override { return "bitsandbytes"; }
  std::vector<Activations> schemes() const override {
    return {{8, true, true, "token", outliers_, true, &formats::int8()}};
  }
  std::vector<std::string> marks() const override { return {"SCB"}; }
  std::vector<std::string> other_parts() const override { return {"weight_format"}; }
  bool excludes(const std::string& module) const override { return excluded_.contains(module); }
  Weight unpack(const Parts& parts) const override;

 private:
  double outliers_;
  ExcludedModules excluded_;
};

Weight Int8::unpack(const Parts& parts) const {
  if (parts.has("weight_format") && parts.of("weight_format", DType::u8, {}).data<std::uint8_t>()[0] != 0)
    parts.refuse("weight_format", "must be 0 (row by row); save the model again with bitsandbytes 0.45 or later");
  Weight w = unpacking::of_signed(parts, formats::int8(), parts.of("weight", DType::i8, {parts.out, parts.in}));
  const Tensor greatest = parts.numbers("SCB", {parts.out});
  w.scales = Tensor::host({w.out, 1}, DType::f32), w.group = int(w.in);
  std::ranges::transform(greatest.values<float>(), w.scales.data<float>(), [](float x) { return x / 127.0f; });
  parts.expect_finite("SCB", w.scales.values<float>(), unpacking::greatest(*w.format, false));
  return with_rounded_inputs(std::move(w), parts, activations());
}

class Bits4 final : public Quantization {
 public:
  explicit Bits4(const Fields& settings) : excluded_(settings, "llm_int8_skip_modules") {
    const std::string kind = settings.string_or("bnb_4bit_quant_type", "fp4");
    if (kind != "nf4" && kind != "fp4")
      settings.refuse("bnb_4bit_quant_type",
                      "the supported ones are \"nf4\" and \"fp4\"; choose a checkpoint of one of them");
    format_ = kind == "nf4" ? &formats::nf4() : &formats::fp4();
    if (settings.string_or("bnb_4bit_quant_storage", "uint8") != "uint8")
      settings.refuse("bnb_4bit_quant_storage", "the supported one is \"uint8\"; choose a checkpoint of it");
  }
  std::string method() const override { return "bitsandbytes"; }
  std::vector<Activations> schemes() const override { return {{.weights = format_}}; }
  std::vector<std::string> marks() const override { return {state_part()}; }
  std::vector<std::string> other_parts() const override {
    return {"weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map"};
  }
  bool excludes(const std::string& module) const override { return excluded_.contains(module); }
  Weight unpack(const Parts& parts) const override;

 private:
  std::string state_part() const { return "weight.quant_state.bitsandbytes__" + format_->name(); }
  void expect_numbers(const Parts& parts) const;
  void expect_shape(const Parts& parts, const Fields& state) const;

  const WeightFormat* format_;
  ExcludedModules excluded_;
};

// The table of the format must be the one that the codes were made with.
void Bits4::expect_numbers(const Parts& parts) const {
  const Tensor map = parts.numbers("weight.quant_map", {16});
  if (!std::ranges::equal(map.values<float>(), format_->numbers()))
    parts.refuse("weight.quant_map", "is not the table of " + format_->name() + "; save the model again");
}

void Bits4::expect_shape(const Parts& parts, const Fields& state) const {
  const auto& shape = state.array("shape");
  if (shape.size() != 2 || shape[0] != parts.out || shape[1] != parts.in)
    state.refuse("shape", "config.json requires " + Shape{parts.out, parts.in}.text() +
                              "; they belong to different checkpoints: download both again");
}

// f32 [blocks], of codes of at most this magnitude.
Tensor scales_of(const Parts& parts, const Fields& state, std::int64_t blocks, float most) {
  if (!parts.has("weight.nested_absmax")) return parts.numbers("weight.absmax", {blocks}, most);
  const std::int64_t size = state.integer("nested_blocksize", 1, kMostBlock);
  const nlohmann::json* offset = state.find("nested_offset");
  if (!offset || !offset->is_number() || std::abs(offset->get<double>()) > std::numeric_limits<float>::max())
    state.refuse("nested_offset", "must be a number that fits 32 bits; download the checkpoint again");
  const Tensor codes = parts.of("weight.absmax", DType::u8, {blocks}),
               map = parts.numbers("weight.nested_quant_map", {256}),
               greatest = parts.numbers("weight.nested_absmax", {(blocks + size - 1) / size});
  const Tensor scales = Tensor::host({blocks}, DType::f32);
  const auto mean = offset->get<float>();
  for (std::int64_t i = 0; i < blocks; ++i) {
    const float scaled = map.data<float>()[codes.data<std::uint8_t>()[i]] * greatest.data<float>()[i / size];
    scales.data<float>()[i] = scaled + mean;
  }
  parts.expect_finite("weight.absmax", scales.values<float>(), most);
  return scales;
}

// Blocks run on from one row to the next, so a row has scales for runs of inputs that lie within one block.
Weight Bits4::unpack(const Parts& parts) const {
  const Tensor text = parts.any(state_part());
  if (text.dtype() != DType::u8 || text.rank() != 1)
    parts.refuse(state_part(), "must be U8 of rank 1; download it again");
  const std::string where = "tensor '" + parts.module() + "." + state_part() + "'";
  const nlohmann::json json = parse_json({text.data<char>(), std::size_t(text.bytes())}, where);
  const Fields state(json, where);
  expect_shape(parts, state);
  expect_numbers(parts);
  const std::int64_t block = state.integer("blocksize", 1, kMostBlock), all = parts.out * parts.in;
  const Tensor packed = parts.of("weight", DType::u8, {(all + 1) / 2, 1}),
               scales = scales_of(parts, state, (all + block - 1) / block, unpacking::greatest(*format_, false));
  Weight w = unpacking::empty(parts, *format_);
  w.group = int(std::gcd(block, w.in));
  w.scales = Tensor::host({w.out, w.in / w.group}, DType::f32);
  for (std::int64_t g = 0; g < all / w.group; ++g)
    w.scales.data<float>()[g] = scales.data<float>()[g * w.group / block];
  in_parallel(w.out, w.in, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * w.in; i < end * w.in; ++i)
      w.values.data<std::uint8_t>()[i] = std::uint8_t(packed.data<std::uint8_t>()[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15);
  });
  return w;
}

}  // namespace

std::shared_ptr<const Quantization> read_bitsandbytes(const Fields& settings) {
  const bool of_4 = settings.boolean_or("load_in_4bit", false), of_8 = settings.boolean_or("load_in_8bit", false);
  if (of_4 == of_8)
    settings.refuse("load_in_4bit", "either that or load_in_8bit must be true; download config.json again");
  if (of_4) return std::make_shared<Bits4>(settings);
  return std::make_shared<Int8>(settings);
}

}  // namespace foretoken
