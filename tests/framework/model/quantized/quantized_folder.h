// A copy of a quantized test checkpoint that a test damages, and the message of opening and loading it.
#pragma once
#include <functional>
#include <string>

#include "framework/model/open_model.h"
#include "tests/framework/model/model_folder.h"

namespace foretoken::test {

const std::string kLayer = "model.layers.0.";
const std::string kUp = kLayer + "mlp.up_proj";

// The sentence that a run with this model and dtype gets after `change`; "" where the model loads.
inline std::string refusal(const std::string& name, const std::function<void(ModelFolder&)>& change,
                           const std::string& dtype = "auto", const std::string& inflate = "") {
  ModelFolder m(name, "quantized");
  change(m);
  m.write();
  return sentence_of([&] {
    ModelChoice choice(m.folder().path().string());
    choice.dtype = dtype, choice.inflate = inflate;
    const OpenModel open = open_model(choice, [](const std::string& path) { return path; });
    if (!inflate.empty()) return;  // large
    const auto backend = make_reference_backend();
    const Transformer model(*backend, open.config, *open.tensors, "m", 0, {.dtype = open.dtype});
  });
}

inline std::string refusal_of_settings(const std::string& name, const nlohmann::json& settings) {
  return refusal(name, [&](ModelFolder& m) { m.config["quantization_config"].update(settings); });
}

// The same tensor with another first or last dimension; what is new is 0.
inline Tensor resized(const Tensor& t, const Shape& shape) {
  const Tensor all = Tensor::host(shape, t.dtype());
  std::memset(all.raw(), 0, std::size_t(all.bytes()));
  std::memcpy(all.raw(), t.raw(), std::size_t(std::min(all.bytes(), t.bytes())));
  return all;
}

inline void set_first(const Tensor& t, float x) {
  if (t.dtype() == DType::f32)
    t.data<float>()[0] = x;
  else  // the upper half of a NaN or an infinity in f32 is one in bf16, and one in f16 if its upper bits are set
    t.data<std::uint16_t>()[0] = std::isnan(x) ? 0x7fff : t.dtype() == DType::bf16 ? 0x7f80 : 0x7c00;
}

}  // namespace foretoken::test
