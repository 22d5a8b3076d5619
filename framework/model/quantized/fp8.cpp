// FP8 as DeepSeek, Qwen3 and AutoFP8 store it. MODULE.weight F8_E4M3 [out, in] and its scale: one number, or one for
// each block of weight_block_size outputs and inputs, where blocks at the edges are smaller. weight_scale and
// weight_scale_inv both multiply: w = scale * number.
#include <tuple>

#include "framework/model/quantized/methods.h"
#include "framework/model/quantized/module_names.h"
#include "framework/model/quantized/settings.h"
#include "framework/model/quantized/unpacking.h"
#include "framework/text/json_file.h"
#include "kernels/formats/formats.h"

namespace foretoken {
namespace {

class Fp8 final : public Quantization {
 public:
  explicit Fp8(const Fields& settings);

  std::string method() const override { return "fp8"; }
  std::vector<Activations> schemes() const override {
    return {{8, false, dynamic_, block_inputs_ ? "group" : dynamic_ ? "token" : "tensor", 0, true, &format()}};
  }
  std::vector<std::string> marks() const override { return {"weight_scale", "weight_scale_inv"}; }
  std::vector<std::string> other_parts() const override { return {"input_scale", "activation_scale"}; }
  bool excludes(const std::string& module) const override {
    return excluded_.contains(module) || ignored_.contains(module);
  }
  // Routers and what joins two states for a prediction layer are dense in DeepSeek's files, which do not say so.
  bool covers(const std::string& module) const override {
    return !excludes(module) && !module.ends_with(".mlp.gate") && !module.ends_with(".eh_proj");
  }
  Weight unpack(const Parts& parts) const override;

 private:
  const WeightFormat& format() const { return block_inputs_ ? formats::fp8_block() : formats::fp8_tensor(); }

  bool dynamic_ = true;
  int block_outputs_ = 0, block_inputs_ = 0;  // 0: one scale for the matrix
  ExcludedModules excluded_, ignored_;
};

Fp8::Fp8(const Fields& settings) : excluded_(settings, "modules_to_not_convert"), ignored_(settings, "ignored_layers") {
  const std::string scheme = settings.string_or("activation_scheme", "dynamic");
  dynamic_ = scheme == "dynamic";
  if (!dynamic_ && scheme != "static")
    settings.refuse("activation_scheme",
                    "the supported ones are \"dynamic\" and \"static\"; choose a checkpoint of one of them");
  if (settings.string_or("fmt", "e4m3") != "e4m3")
    settings.refuse("fmt", "the supported one is \"e4m3\"; choose a checkpoint of it");
  if (settings.string_or("scale_fmt", "float") != "float")
    settings.refuse("scale_fmt",
                    "the supported one is \"float\"; set it where the scales are F32, BF16 or F16, else choose another "
                    "checkpoint");
  refuse_cache_scheme(settings);
  if (settings.has("weight_block_size"))
    std::tie(block_outputs_, block_inputs_) = read_block(settings, "weight_block_size");
}

Weight Fp8::unpack(const Parts& parts) const {
  const std::string scale = parts.has("weight_scale_inv") ? "weight_scale_inv" : "weight_scale";
  if (scale == "weight_scale_inv" && parts.has("weight_scale"))
    parts.refuse(scale, "stands beside 'weight_scale', so that it is not clear which is meant; remove one of them");
  Weight w = unpacking::empty(parts, format());
  w.values = unpacking::e4m3_codes(parts, "weight");
  const float most = unpacking::greatest(format(), false);
  if (block_inputs_ == 0) {
    unpacking::set_scales(w, parts.number(scale, most), w.out, w.in);
    return with_rounded_inputs(std::move(w), parts, activations());
  }
  const std::int64_t rows = (w.out + block_outputs_ - 1) / block_outputs_,
                     columns = (w.in + block_inputs_ - 1) / block_inputs_;
  unpacking::set_scales(w, parts.numbers(scale, {rows, columns}, most), block_outputs_, block_inputs_);
  return w;
}

}  // namespace

std::shared_ptr<const Quantization> read_fp8(const Fields& settings) { return std::make_shared<Fp8>(settings); }

}  // namespace foretoken
