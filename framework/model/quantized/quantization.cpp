#include "framework/model/quantized/quantization.h"

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

}  // namespace

std::string Activations::text() const {
  return (integers ? "int" : "fp") + std::to_string(bits) + " (" + (dynamic ? "dynamic" : "static") +
         ", a scale for each " + strategy + (outliers > 0 ? ", outliers apart" : "") + ")";
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
