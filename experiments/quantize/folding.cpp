#include "experiments/quantize/folding.h"

#include <algorithm>
#include <cmath>

#include "experiments/quantize/calibration.h"
#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"

namespace foretoken {
namespace {

constexpr std::size_t kQkv = 0, kOut = 1, kGateUp = 2, kDown = 3;  // of Calibration::products()

bool is_matrix(const DenseLayer& layer, const std::string& module) { return layer.matrices.contains(module); }

// nullptr: the layer has no such tensor.
StoredTensor* find(DenseLayer& layer, const std::string& name) {
  const auto found = std::ranges::find(layer.others, layer.prefix + name, &StoredTensor::name);
  return found == layer.others.end() ? nullptr : &*found;
}

Tensor gain_of(const DenseLayer& layer, const Fold& fold) {
  return find(const_cast<DenseLayer&>(layer), fold.maker + ".weight")->values;
}

// A copy [n], each divided by its scale, in the type of the tensor, or in f32 where that has no rounding here.
Tensor divided(const Tensor& t, std::span<const float> scales) {
  const Tensor values = converted(t, DType::f32), quotients = Tensor::host(t.shape(), DType::f32);
  for (std::size_t i = 0; i < scales.size(); ++i) quotients.data<float>()[i] = values.data<float>()[i] / scales[i];
  return converted(quotients, t.dtype() == DType::bf16 ? DType::bf16 : DType::f32);
}

// A copy in f32, each number [o, i] changed by change(number, o, i).
template <class Change> Weight changed(const Weight& dense, const Change& change) {
  Weight w = dense;
  w.values = Tensor::host({dense.out, dense.in}, DType::f32);
  convert(dense.values, w.values);
  by_all_cores(w.out, w.in, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o)
      for (std::int64_t i = 0; i < w.in; ++i) change(w.values.row<float>(o)[i], std::size_t(o), std::size_t(i));
  });
  return w;
}

}  // namespace

std::vector<Fold> folds_of(const ModelConfig& config) {
  std::vector<Fold> all = {{kQkv, "input_layernorm"}};
  if (config.kv_heads == config.heads) all.push_back({kOut, "self_attn.v_proj"});
  all.push_back({kGateUp, "post_attention_layernorm"});
  all.push_back({kDown, "mlp.up_proj"});
  return all;
}

std::vector<float> foldable(const DenseLayer& layer, const Fold& fold, std::span<const float> scales) {
  std::vector<float> found(scales.begin(), scales.end());
  if (is_matrix(layer, fold.maker)) return found;
  const Tensor gain = gain_of(layer, fold), before = converted(gain, DType::f32),
               after = converted(divided(gain, scales), DType::f32);
  for (std::size_t i = 0; i < found.size(); ++i) {
    found[i] = before.data<float>()[i] / after.data<float>()[i];
    if (!std::isfinite(found[i]) || found[i] <= 0) found[i] = 1;
  }
  return found;
}

void fold_into(DenseLayer& layer, const Fold& fold, std::span<const float> scales) {
  for (const std::string& module : Calibration::products()[fold.product])
    layer.matrices[module] = with_columns(layer.matrices.at(module), scales);
  const auto divide = [&](const std::string& name) {
    StoredTensor* const t = find(layer, name);
    if (!t) return;
    const Tensor wide = is_matrix(layer, fold.maker) ? converted(t->values, DType::f32) : t->values;
    *t = stored_tensor(t->name, divided(wide, scales));
  };
  if (!is_matrix(layer, fold.maker)) return divide(fold.maker + ".weight");
  layer.matrices[fold.maker] =
      changed(layer.matrices.at(fold.maker), [&](float& w, std::size_t o, std::size_t) { w /= scales[o]; });
  divide(fold.maker + ".bias");
}

Weight with_columns(const Weight& dense, std::span<const float> scales) {
  return changed(dense, [&](float& w, std::size_t, std::size_t i) { w *= scales[i]; });
}

}  // namespace foretoken
