#include "framework/model/quantized/quantization.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/model/quantized/methods.h"
#include "framework/text/json_file.h"

namespace foretoken {
namespace {

using Reader = std::shared_ptr<const Quantization> (*)(const Fields&);
struct Method {
  const char* name;
  Reader read;
};
constexpr Method kMethods[] = {{"gptq", read_gptq},
                               {"awq", read_awq},
                               {"bitsandbytes", read_bitsandbytes},
                               {"fp8", read_fp8},
                               {"compressed-tensors", read_compressed_tensors},
                               {"mxfp4", read_mxfp4}};

// Of any type: the bits of 0 are 0.
bool is_zero(const Tensor& t) {
  const auto* bytes = static_cast<const unsigned char*>(t.raw());
  return std::all_of(bytes, bytes + t.bytes(), [](unsigned char byte) { return byte == 0; });
}

}  // namespace

std::string Activations::text() const {
  return (integers ? "int" : "fp") + std::to_string(bits) + " (" + (dynamic ? "dynamic" : "static") +
         ", a scale for each " + strategy + (symmetric ? "" : ", with zero points") +
         (outliers > 0 ? ", magnitudes from " + nlohmann::json(outliers).dump() + " apart" : "") + ")";
}

const ActivationFormat* Activations::format() const {
  if (bits != 8 || !symmetric || strategy != (dynamic ? "token" : "tensor")) return nullptr;
  if (!weights || weights->coding() != (integers ? Coding::integers : Coding::e4m3)) return nullptr;
  for (const ActivationFormat* f : activation_formats())
    if ((f->coding() == Coding::integers) == integers && double(f->outliers()) == outliers) return f;
  return nullptr;
}

std::vector<const WeightFormat*> Quantization::formats() const {
  std::vector<const WeightFormat*> all;
  for (const Activations& a : schemes())
    if (std::ranges::find(all, a.weights) == all.end()) all.push_back(a.weights);
  return all;
}

Activations Quantization::activations() const {
  Activations supported;
  for (const Activations& a : schemes()) {
    if (a.bits == 0) continue;
    if (!a.format()) return a;
    supported = a;
  }
  return supported;
}

Weight with_rounded_inputs(Weight w, const Parts& parts, const Activations& a) {
  const ActivationFormat* format = a.format();
  if (!format) return w;
  if (a.dynamic) return with_activations(std::move(w), *format);
  const std::string part = parts.has("activation_scale") ? "activation_scale" : "input_scale";
  const float scale = parts.number(part).data<float>()[0];
  if (scale < std::numeric_limits<float>::min())
    parts.refuse(
        part,
        "must be above 0, and at least 1.2e-38, below which inputs become 0; download the checkpoint again, or "
        "quantize anew");
  if (!std::isfinite(scale * format->greatest()))
    parts.refuse(
        part, "holds a number so large that inputs become infinite; download the checkpoint again, or quantize anew");
  if (const std::string zero = "input_zero_point"; parts.has(zero) && !is_zero(parts.any(zero)))
    parts.refuse(zero,
                 "is not 0, though quantization_config is symmetric; correct 'symmetric' in config.json, or download "
                 "both again");
  return with_activations(std::move(w), *format, scale);
}

std::shared_ptr<const Quantization> read_quantization(const Fields& settings) {
  // Early files of bitsandbytes do not name it.
  const bool unnamed = !settings.has("quant_method") && (settings.has("load_in_4bit") || settings.has("load_in_8bit"));
  const std::string name = unnamed ? "bitsandbytes" : settings.string("quant_method");
  std::string known;
  for (const Method& m : kMethods) {
    if (name == m.name) return m.read(settings);
    known += (known.empty() ? "" : ", ") + std::string(m.name);
  }
  settings.refuse("quant_method", "the supported ones are " + known + "; choose a checkpoint of one of them");
}

}  // namespace foretoken
