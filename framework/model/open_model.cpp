#include "framework/model/open_model.h"

#include <algorithm>

#include "framework/model/inflation.h"
#include "framework/model/model_files.h"
#include "framework/model/quantized/quantization.h"
#include "framework/model/random_weights.h"
#include "framework/model/shapes.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

std::vector<std::string> names_of_formats(const TensorSource& tensors) {
  std::vector<std::string> names;
  for (const WeightFormat* format : tensors.formats()) names.push_back(format->name());
  return names;
}

// The type to which a model of quantized matrices is loaded, where a run asks for `dtype`. They are not rounded from
// one format to another: that would be neither what is stored nor what quantizing the original gives. `q`: nullptr for
// a GGUF file, which does not say how inputs are rounded, so that a run may.
std::string type_of_quantized(const ModelChoice& choice, const std::vector<std::string>& stored,
                              const Quantization* q) {
  const std::string& dtype = choice.dtype;
  if (dtype == "bf16" || dtype == "f32") return dtype;
  const bool inflated = !choice.inflate.empty();
  const Activations a = q ? q->activations() : Activations();
  const std::string what = choice.directory + ": " +
                           (q ? "quantization_config of config.json is '" + q->method() + "' ("
                              : std::string("its matrices are quantized (")) +
                           listed(stored) + ")";
  if (dtype == "auto") {
    if (a.bits == 0 || (a.format() && !inflated)) return dtype;
    throw Error(what + " and rounds inputs of matrices to " + a.text() + ", which is not supported" +
                (a.format() ? " when it is inflated" : "") + "; for its weights alone, set dtype to " +
                (inflated ? "" : listed(stored) + " or ") + "bf16");
  }
  if (stored == std::vector{dtype} && !inflated) return "auto";
  const Precision* precision = find_precision(dtype);
  if (precision && precision->activations && !inflated && stored == std::vector{precision->weights->name()}) {
    if (!q) return dtype;
    if (precision->activations == a.format()) return "auto";
  }
  throw Error(what + (inflated ? ", dense when it is inflated" : "") + ", which contradicts the dtype '" + dtype +
              "' of the run; set dtype to auto, bf16 or f32" +
              (!inflated && stored.size() == 1 ? ", or " + stored[0] : ""));
}

}  // namespace

OpenModel open_model(const ModelChoice& choice, const FindDirectory& find, const std::function<void()>& between) {
  const auto shape = [&](const std::string& name) {
    return name.find('/') == std::string::npos ? published_shape(name) : ModelFiles::open(find(name))->config();
  };
  if (!choice.random.empty()) {
    const DType scales = choice.scales == "f32" ? DType::f32 : choice.scales == "f16" ? DType::f16 : DType::bf16;
    OpenModel m{shape(choice.random), std::make_shared<RandomWeights>(choice.seed, between, scales), choice.dtype};
    if (choice.long_context) m.config = m.config.with_long_factors();
    m.config.eos.clear();
    m.config.gains_less_one = false;  // random gains are what they are
    return m;
  }
  const auto files = ModelFiles::open(find(choice.directory));
  OpenModel m{files->config(), files->tensors(), choice.dtype};
  if (choice.long_context) m.config = m.config.with_long_factors();
  if (const auto stored = names_of_formats(*m.tensors); !stored.empty())
    m.dtype = type_of_quantized(choice, stored, m.config.quantization.get());
  if (m.config.quantization && find_format(choice.dtype)) m.tensors = weights_alone(m.tensors);
  if (choice.inflate.empty()) return m;
  const auto inflated = std::make_shared<InflatedWeights>(m.tensors, m.config, shape(choice.inflate), choice.directory,
                                                          choice.inflate, choice.dtype == "f32", between);
  return {inflated->config(), inflated, m.dtype};
}

std::uint64_t random_vocabulary(int tokens) { return 0x72616e646f6d0000ull ^ std::uint64_t(tokens); }

}  // namespace foretoken
