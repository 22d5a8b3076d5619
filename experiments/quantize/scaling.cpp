#include "experiments/quantize/scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <Eigen/Core>

#include "experiments/quantize/calibration.h"
#include "experiments/quantize/rounding_error.h"
#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"

namespace foretoken {
namespace {

constexpr int kSteps = 20;             // of alpha, and of the whole range of clipping
constexpr int kCuts = kSteps / 2;      // which is searched down to one half
constexpr std::int64_t kWidest = 512;  // group that is cut

// nullptr: the layer has no such tensor.
StoredTensor* find(DenseLayer& layer, const std::string& name) {
  const auto found = std::ranges::find(layer.others, layer.prefix + name, &StoredTensor::name);
  return found == layer.others.end() ? nullptr : &*found;
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
  w.values = f32_copy(dense.values);
  by_all_cores(w.out, w.in, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o)
      for (std::int64_t i = 0; i < w.in; ++i) change(w.values.row<float>(o)[i], std::size_t(o), std::size_t(i));
  });
  return w;
}

// magnitudes^alpha around 1, so that weights keep their order of magnitude.
std::vector<float> powers(std::span<const float> magnitudes, double alpha) {
  std::vector<float> s;
  for (const float m : magnitudes) s.push_back(float(std::max(std::pow(double(m), alpha), 1e-4)));
  const auto [low, high] = std::ranges::minmax(s);
  for (float& v : s) v /= std::sqrt(low * high);
  return s;
}

// X^T X of the inputs of each group.
std::vector<Weight> group_products(Backend& host, const Tensor& x, std::int64_t group) {
  using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const std::int64_t groups = x.dim(1) / group;
  std::vector<Tensor> products;
  for (std::int64_t g = 0; g < groups; ++g) products.push_back(Tensor::host({group, group}, DType::f32));
  const Eigen::Map<const Rows> all(x.data<float>(), x.dim(0), x.dim(1));
  by_all_cores(groups, x.dim(0) * group * group, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t g = begin; g < end; ++g) {
      const Rows inputs = all.middleCols(g * group, group);
      Eigen::Map<Rows>(products[std::size_t(g)].data<float>(), group, group) = inputs.transpose() * inputs;
    }
  });
  std::vector<Weight> prepared;
  for (const Tensor& p : products) prepared.push_back(host.prepare(Weight::dense(p)));
  return prepared;
}

// f32 [out, groups]: d S d^T for the part d of each row of `lost` in each group and its products S.
Tensor group_errors(Backend& host, const Tensor& lost, const std::vector<Weight>& products) {
  const std::int64_t out = lost.dim(0), group = products.front().in;
  const Tensor errors = Tensor::host({out, std::int64_t(products.size())}, DType::f32);
  std::vector<Tensor> all;  // d S of each group
  for (std::size_t g = 0; g < products.size(); ++g)
    all.push_back(host.linear(lost.columns(std::int64_t(g) * group, group), products[g]));
  by_all_cores(out, lost.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o)
      for (std::size_t g = 0; g < all.size(); ++g) {
        const float *d = lost.row<float>(o) + std::int64_t(g) * group, *y = all[g].row<float>(o);
        double sum = 0;
        for (std::int64_t i = 0; i < group; ++i) sum += double(d[i]) * double(y[i]);
        errors.row<float>(o)[g] = float(sum);
      }
  });
  return errors;
}

// The matrix with the weights of each group within that share of its greatest magnitude; shares f32 [out, groups].
Weight cut(const Weight& dense, const Tensor& shares) {
  Weight w = dense;
  w.values = f32_copy(dense.values);
  const std::int64_t group = w.in / shares.dim(1);
  by_all_cores(w.out, 2 * w.in, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o)
      for (std::int64_t g = 0; g < shares.dim(1); ++g) {
        const std::span<float> part(w.values.row<float>(o) + g * group, std::size_t(group));
        const float most = shares.row<float>(o)[g] * extremes(part).magnitude();
        for (float& v : part) v = std::clamp(v, -most, most);
      }
  });
  return w;
}

Tensor filled(const Shape& shape, float value) {
  const Tensor t = Tensor::host(shape, DType::f32);
  std::ranges::fill(t.values<float>(), value);
  return t;
}

// The share for each group whose outputs change least.
Tensor best_shares(Backend& host, const Weight& dense, const WeightFormat& format, const Tensor& x,
                   std::int64_t group) {
  const std::vector<Weight> products = group_products(host, x, group);
  const Shape shape{dense.out, std::int64_t(products.size())};
  const Tensor best = filled(shape, 1), least = filled(shape, std::numeric_limits<float>::infinity());
  for (int step = 0; step < kCuts; ++step) {
    const float share = 1 - float(step) / kSteps;
    const Weight rounded = quantize(cut(dense, filled(shape, share)), format, 0, by_all_cores);
    const Tensor errors = group_errors(host, weights_lost(dense, rounded), products);
    for (std::int64_t i = 0; i < errors.elements(); ++i)
      if (errors.data<float>()[i] < least.data<float>()[i]) {
        least.data<float>()[i] = errors.data<float>()[i];
        best.data<float>()[i] = share;
      }
  }
  return best;
}

}  // namespace

std::vector<Fold> folds_of(const ModelConfig& config) {
  std::vector<Fold> all = {
      {0, "input_layernorm"}, {1, "self_attn.v_proj"}, {2, "post_attention_layernorm"}, {3, "mlp.up_proj"}};
  if (config.kv_heads != config.heads) all.erase(all.begin() + 1);
  return all;
}

std::vector<float> foldable(const DenseLayer& layer, const Fold& fold, std::span<const float> scales) {
  std::vector<float> found(scales.begin(), scales.end());
  if (layer.matrices.contains(fold.maker)) return found;
  const Tensor gain = find(const_cast<DenseLayer&>(layer), fold.maker + ".weight")->values,
               before = converted(gain, DType::f32), after = converted(divided(gain, scales), DType::f32);
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
    const Tensor wide = layer.matrices.contains(fold.maker) ? converted(t->values, DType::f32) : t->values;
    *t = stored_tensor(t->name, divided(wide, scales));
  };
  if (!layer.matrices.contains(fold.maker)) return divide(fold.maker + ".weight");
  layer.matrices[fold.maker] =
      changed(layer.matrices.at(fold.maker), [&](float& w, std::size_t o, std::size_t) { w /= scales[o]; });
  divide(fold.maker + ".bias");
}

Weight with_columns(const Weight& dense, std::span<const float> scales) {
  return changed(dense, [&](float& w, std::size_t, std::size_t i) { w *= scales[i]; });
}

std::vector<float> smoothing_scales(std::span<const Weight> dense, std::span<const float> largest, double alpha) {
  std::vector<float> weights(largest.size(), 0.0f);
  for (const Weight& w : dense) {
    const Tensor values = converted(w.values, DType::f32);
    by_all_cores(w.in, w.out, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t o = 0; o < w.out; ++o)
        for (std::int64_t i = begin; i < end; ++i)
          weights[std::size_t(i)] = std::max(weights[std::size_t(i)], std::abs(values.row<float>(o)[i]));
    });
  }
  std::vector<float> scales;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double s = std::pow(double(largest[i]), alpha) / std::pow(double(weights[i]), 1 - alpha);
    scales.push_back(largest[i] > 0 && weights[i] > 0 ? float(s) : 1.0f);
  }
  return scales;
}

std::vector<float> awq_scales(Backend& device, std::span<const Weight> dense, const WeightFormat& format,
                              std::span<const float> magnitudes, const Tensor& x, const Foldable& foldable) {
  const Tensor inputs = device.upload(x);
  std::vector<float> best;
  double least = std::numeric_limits<double>::infinity();
  for (int step = 0; step <= kSteps; ++step) {
    const std::vector<float> scales = foldable(powers(magnitudes, double(step) / kSteps));
    double lost = 0;
    for (const Weight& w : dense) {
      const Weight rounded = quantize(with_columns(w, scales), format, 0, by_all_cores);
      lost += squared_outputs(device, inputs, weights_lost(w, rounded, scales));
    }
    if (lost < least || best.empty()) {
      least = lost;
      best = scales;
    }
  }
  return best;
}

Weight awq_rounded(Backend& host, const Weight& dense, const WeightFormat& format, const Tensor& x) {
  const Weight whole = quantize(dense, format, 0, by_all_cores);
  const Block block = format.block(dense.out, dense.in);
  if (block.outputs != 1 || block.inputs > kWidest) return whole;
  const Tensor shares = best_shares(host, dense, format, x, block.inputs);
  Weight parts = quantize(cut(dense, shares), format, 0, by_all_cores);
  // Groups are judged one by one, but their errors may add up.
  const auto lost = [&](const Weight& w) { return squared_outputs(host, x, weights_lost(dense, w)); };
  return lost(parts) <= lost(whole) ? parts : whole;
}

}  // namespace foretoken
