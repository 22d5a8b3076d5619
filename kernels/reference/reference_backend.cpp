#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <Eigen/Core>

#include "kernels/cache_codes.h"
#include "kernels/error.h"
#include "kernels/formats/format.h"
#include "kernels/reference/rounded_product.h"

namespace foretoken {
namespace {

using Matrix = Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

float element(const Tensor& t, std::int64_t row, std::int64_t column) {
  switch (t.dtype()) {
    case DType::f32:
      return t.row<float>(row)[column];
    case DType::bf16:
      return float(t.row<bf16>(row)[column]);
    case DType::f16:
      return float_from_f16(t.row<std::uint16_t>(row)[column]);
    default:
      throw Error(std::string("a weight holds ") + name_of(t.dtype()) + " numbers; F32, F16 and BF16 are supported");
  }
}

// The slots that row r attends to, by depth: the prefix, then the ancestors.
std::vector<std::int32_t> seen_slots(const Layout& layout, int r) {
  std::vector<std::int32_t> slots;
  const std::int32_t visible = layout.visible.data<std::int32_t>()[r];
  for (std::int32_t s = layout.first ? layout.first.data<std::int32_t>()[r] : 0; s < visible; ++s) slots.push_back(s);
  for (int bit = 0; bit < 64 * layout.words; ++bit)
    if (layout.ancestors.row<std::uint64_t>(r)[bit / 64] >> (bit % 64) & 1u) slots.push_back(visible + bit);
  return slots;
}

// The key (or value) of one kv head in one slot, of out.size() numbers.
void read_head(const KvLayer& kv, std::int64_t plane, const std::int32_t* table, std::int32_t slot, int h,
               std::vector<double>& out) {
  const std::byte* p = slot_address(kv, plane, table, slot);
  const std::int64_t head = std::int64_t(h) * kv.page_rows * kv.head_size;
  if (has_scales(kv.dtype)) {
    const KvPlane scales{plane == kv.keys ? kv.key_scales : kv.value_scales, 4};
    const double scale = reinterpret_cast<const float*>(slot_address(kv, scales, table, slot))[h * kv.page_rows];
    for (double& x : out) x = scale * number_of(kv.dtype, *(p++ + head));
    return;
  }
  for (std::int64_t i = 0; i < std::ssize(out); ++i) {
    out[std::size_t(i)] = kv.dtype == DType::f32 ? reinterpret_cast<const float*>(p)[head + i]
                                                 : float(reinterpret_cast<const bf16*>(p)[head + i]);
  }
}

// Of a query head; -infinity: there is none.
double sink_of(const AttentionRules& rules, int head) {
  return rules.sinks ? double(rules.sinks.data<float>()[head]) : -INFINITY;
}

// softmax(q . k * scale) over `slots` of kv head h and the sink, times the mass that is returned. No sink: -infinity.
double weigh(const float* q, const KvLayer& kv, const std::int32_t* table, const std::vector<std::int32_t>& slots,
             int h, const AttentionRules& rules, double sink, std::vector<double>& weights) {
  std::vector<double> row(std::size_t(kv.head_size));
  weights.resize(slots.size());
  double peak = sink;
  for (std::size_t j = 0; j < slots.size(); ++j) {
    read_head(kv, kv.keys, table, slots[j], h, row);
    double dot = 0;
    for (std::size_t i = 0; i < row.size(); ++i) dot += q[i] * row[i];
    weights[j] = capped(dot * rules.scale, rules.softcap);
    peak = std::max(peak, weights[j]);
  }
  double mass = sink == -INFINITY ? 0 : std::exp(sink - peak);
  for (double& w : weights) mass += w = std::exp(w - peak);
  return mass;
}

// One head of one row: `out` = softmax(f(q . k * scale)) v over `slots` of kv head h.
void attend_head(const float* q, const KvLayer& kv, const std::int32_t* table, const std::vector<std::int32_t>& slots,
                 int h, const AttentionRules& rules, double sink, float* out) {
  std::vector<double> weights, row(std::size_t(kv.value_size())), sum(row.size(), 0.0);
  const double mass = weigh(q, kv, table, slots, h, rules, sink, weights);
  for (std::size_t j = 0; j < slots.size(); ++j) {
    read_head(kv, kv.values, table, slots[j], h, row);
    for (std::size_t i = 0; i < row.size(); ++i) sum[i] += weights[j] * row[i];
  }
  for (std::size_t i = 0; i < row.size(); ++i) out[i] = float(sum[i] / mass);
}

}  // namespace

Tensor dequantize(const Weight& stored) {
  const Weight w = in_input_order(dequantized(stored));
  Tensor dense = Tensor::host({w.out, w.in}, DType::f32);
  for (std::int64_t o = 0; o < w.out; ++o)
    for (std::int64_t i = 0; i < w.in; ++i) dense.row<float>(o)[i] = element(w.values, o, i);
  return dense;
}

Weight ReferenceBackend::prepare(Weight weight) {
  if (weight.activations)
    weight.prepared = std::make_shared<const PreparedCodes>(dequantize(weight), weight);
  else
    weight.prepared = std::make_shared<const PreparedMatrix>(dequantize(weight));
  weight.forget_stored();
  return weight;
}

Tensor ReferenceBackend::embed(const Weight& weight, const Tensor& tokens) {
  const Tensor table =
      weight.prepared ? static_cast<const PreparedMatrix*>(weight.prepared.get())->matrix : weight.values;
  Tensor y = allocate({tokens.dim(0), table.dim(1)}, DType::f32);
  for (std::int64_t r = 0; r < y.dim(0); ++r) {
    const std::int32_t token = *tokens.row<std::int32_t>(r);
    assert(token < table.dim(0));
    for (std::int64_t i = 0; i < y.dim(1); ++i) y.row<float>(r)[i] = token < 0 ? 0.0f : element(table, token, i);
  }
  return y;
}

Tensor ReferenceBackend::rms_norm(const Tensor& x, const Tensor& gain, float epsilon) {
  expect_rows("rms_norm", x, gain.dim(0));
  Tensor y = allocate(x.shape(), DType::f32);
  for (std::int64_t r = 0; r < x.dim(0); ++r) {
    double squares = 0;
    for (std::int64_t i = 0; i < x.dim(1); ++i) squares += double(x.row<float>(r)[i]) * x.row<float>(r)[i];
    const double inverse = 1 / std::sqrt(squares / double(x.dim(1)) + double(epsilon));
    for (std::int64_t i = 0; i < x.dim(1); ++i)
      y.row<float>(r)[i] = float(x.row<float>(r)[i] * inverse * gain.data<float>()[i]);
  }
  return y;
}

// Row by row, from an aligned copy, so that a row's sum depends neither on other rows nor on its address.
Tensor ReferenceBackend::linear(const Tensor& x, const Weight& w) {
  expect_rows("linear", x, w.in);
  if (w.activations) return rounded_product(x, w);
  const Tensor dense = w.prepared ? static_cast<const PreparedMatrix*>(w.prepared.get())->matrix : dequantize(w);
  const Matrix matrix(dense.data<float>(), w.out, w.in);
  Tensor y = allocate({x.dim(0), w.out}, DType::f32);
  Eigen::VectorXf in(w.in), out(w.out);
  for (std::int64_t r = 0; r < x.dim(0); ++r) {
    in = Eigen::Map<const Eigen::VectorXf>(x.row<float>(r), w.in);
    out.noalias() = matrix * in;
    Eigen::Map<Eigen::VectorXf>(y.row<float>(r), w.out) = out;
  }
  add_bias(y, w);
  return y;
}

// Pair by pair.
Tensor ReferenceBackend::grouped_linear(const Tensor& x, const Routing& routing, const ExpertWeights& experts) {
  expect_grouped(x, routing, experts);
  Tensor y = allocate({routing.count(), experts.out}, DType::f32);
  for (std::int64_t p = 0; p < y.dim(0); ++p) {
    const std::int32_t expert = routing.chosen.data<std::int32_t>()[p];
    if (expert < 0) continue;
    copy(linear(x.rows(p * x.dim(0) / y.dim(0), 1), experts.matrices[std::size_t(expert)]), y.rows(p, 1));
  }
  return y;
}

void ReferenceBackend::rope(Tensor q, Tensor k, const Layout& layout, const RotaryRules& rotation, int head_size) {
  const int half = int(rotation.frequencies.dim(0));
  for (int r = 0; r < layout.rows; ++r) {
    for (int i = 0; i < half; ++i) {
      const float angle = float(layout.positions.data<std::int32_t>()[r]) * rotation.frequencies.data<float>()[i];
      const double c = std::cos(double(angle)) * rotation.factor, s = std::sin(double(angle)) * rotation.factor;
      for (const Tensor* x : {&q, &k}) {
        for (std::int64_t h = 0; h < x->dim(1); h += head_size) {
          float& a = x->row<float>(r)[h + (rotation.neighbours ? 2 * i : i)];
          float& b = x->row<float>(r)[h + (rotation.neighbours ? 2 * i + 1 : i + half)];
          const double rotated = a * c - b * s;
          b = float(b * c + a * s);
          a = float(rotated);
        }
      }
    }
  }
}

Tensor ReferenceBackend::attend(const Tensor& q, const KvLayer& kv, const Layout& layout, const AttentionRules& rules) {
  const int heads = int(q.dim(1)) / kv.head_size;
  Tensor y = allocate({q.dim(0), std::int64_t(heads) * kv.value_size()}, DType::f32);
  for (int r = 0; r < layout.rows; ++r) {
    const std::int32_t owner = layout.owner.data<std::int32_t>()[r];
    const std::vector<std::int32_t> slots = seen_slots(layout, r);
    for (int h = 0; h < heads; ++h) {
      const int kv_head = h / (heads / kv.kv_heads);
      attend_head(q.row<float>(r) + std::int64_t(h) * kv.head_size, kv, table_of(layout, owner, kv_head, kv.kv_heads),
                  slots, kv_head, rules, sink_of(rules, h), y.row<float>(r) + std::int64_t(h) * kv.value_size());
    }
  }
  return y;
}

Tensor ReferenceBackend::attention_mass(const Tensor& q, const KvLayer& kv, const Layout& layout,
                                        const AttentionRules& rules) {
  Tensor all = allocate({layout.sequences, layout.table_width}, DType::f32);
  std::fill_n(all.data<float>(), all.elements(), 0.0f);
  const int heads = int(q.dim(1)) / kv.head_size;
  std::vector<double> weights;
  for (int r = 0; r < layout.rows; ++r) {
    const std::int32_t owner = layout.owner.data<std::int32_t>()[r], *table = layout.tables.row<std::int32_t>(owner);
    const std::vector<std::int32_t> slots = seen_slots(layout, r);
    for (int h = 0; h < heads; ++h) {
      const double mass = weigh(q.row<float>(r) + std::int64_t(h) * kv.head_size, kv, table, slots,
                                h / (heads / kv.kv_heads), rules, sink_of(rules, h), weights);
      for (std::size_t j = 0; j < slots.size(); ++j)
        all.row<float>(owner)[slots[j] / kv.page_rows] += float(weights[j] / mass);
    }
  }
  return all;
}

Tensor ReferenceBackend::silu_mul(const Tensor& gate_up) {
  const std::int64_t width = gate_up.dim(1) / 2;
  Tensor y = allocate({gate_up.dim(0), width}, DType::f32);
  for (std::int64_t r = 0; r < y.dim(0); ++r) {
    const float* gate = gate_up.row<float>(r);
    for (std::int64_t i = 0; i < width; ++i)
      y.row<float>(r)[i] = float(gate[i] / (1 + std::exp(-double(gate[i]))) * gate[width + i]);
  }
  return y;
}

Tensor ReferenceBackend::gelu_mul(const Tensor& gate_up) {
  const std::int64_t width = gate_up.dim(1) / 2;
  Tensor y = allocate({gate_up.dim(0), width}, DType::f32);
  for (std::int64_t r = 0; r < y.dim(0); ++r)
    for (std::int64_t i = 0; i < width; ++i) {
      const double g = gate_up.row<float>(r)[i];
      const double gelu = g / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
      y.row<float>(r)[i] = float(gelu * gate_up.row<float>(r)[width + i]);
    }
  return y;
}

Tensor ReferenceBackend::clamped_mul(const Tensor& gate_up, float slope, float limit) {
  const std::int64_t width = gate_up.dim(1) / 2;
  Tensor y = allocate({gate_up.dim(0), width}, DType::f32);
  for (std::int64_t r = 0; r < y.dim(0); ++r)
    for (std::int64_t i = 0; i < width; ++i) {
      const double g = std::min(gate_up.row<float>(r)[i], limit);
      const double u = std::clamp(gate_up.row<float>(r)[width + i], -limit, limit);
      y.row<float>(r)[i] = float(g / (1 + std::exp(-double(slope) * g)) * (u + 1));
    }
  return y;
}

void ReferenceBackend::softcap(Tensor x, float cap) {
  for (std::int64_t r = 0; r < x.dim(0); ++r)
    for (float& v : std::span(x.row<float>(r), std::size_t(x.dim(1))))
      if (v != -INFINITY) v = float(capped(v, cap));  // that of a token that cannot be stays
}

void ReferenceBackend::silu_add(Tensor x, const Tensor& y) {
  expect_silu_add(x, y);
  for (std::int64_t r = 0; r < x.dim(0); ++r)
    for (std::int64_t i = 0; i < x.dim(1); ++i) {
      float& v = x.row<float>(r)[i];
      v = float(v / (1 + std::exp(-double(v)))) + y.row<float>(r)[i % y.dim(1)];
    }
}

void ReferenceBackend::add(Tensor x, const Tensor& y) {
  expect_rows("add", x, y.dim(1));
  for (std::int64_t r = 0; r < x.dim(0); ++r)
    for (std::int64_t i = 0; i < x.dim(1); ++i) x.row<float>(r)[i] += y.row<float>(r)[i];
}

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace foretoken
