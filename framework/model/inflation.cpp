#include "framework/model/inflation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "framework/model/in_parallel.h"
#include "framework/model/model_tensors.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr std::uint64_t kSeed = 1;  // of the random weights around the small model
constexpr float kFeature = 1024;    // the constant features after the last norm, times the rms of a row
constexpr float kNever = 4096;      // m
constexpr int kConstants = 2;       // features

std::string number(std::int64_t n) { return std::to_string(n); }

// Copies of a small key-value head, so that each has no more queries than a large group.
int copies_of(const ModelConfig& small, const ModelConfig& large) {
  const int group = small.heads / small.kv_heads, room = large.heads / large.kv_heads;
  return (group + room - 1) / room;
}

bool same_rotation(const ModelConfig& small, const ModelConfig& large) {
  const auto a = small.rope_frequencies(), b = large.rope_frequencies();
  const std::size_t ratio = b.size() / a.size();
  for (std::size_t j = 0; j < a.size(); ++j)
    if (a[j] != b[j * ratio]) return false;
  return true;
}

// Why the shape cannot hold the small model; empty: it can.
std::string obstacle(const ModelConfig& small, const ModelConfig& shape) {
  const auto lacks = [](const std::string& what, std::int64_t has, std::int64_t needs) {
    return "it has " + number(has) + " " + what + ", and " + number(needs) + " are needed";
  };
  const int constants = shape.vocab > small.vocab ? kConstants : 0;
  if (shape.vocab < small.vocab) return lacks("tokens in its vocabulary", shape.vocab, small.vocab);
  if (shape.width < small.width + constants) return lacks("features", shape.width, small.width + constants);
  if (shape.layers < small.layers) return lacks("layers", shape.layers, small.layers);
  if (shape.ffn < small.ffn) return lacks("hidden units", shape.ffn, small.ffn);
  if (shape.head_size % small.head_size)
    return "its head size " + number(shape.head_size) + " is no multiple of " + number(small.head_size);
  if (const int needs = small.kv_heads * copies_of(small, shape); shape.kv_heads < needs)
    return lacks("key-value heads", shape.kv_heads, needs);
  if (shape.tied_head && !small.tied_head) return "its head is its embedding, and the small model has two matrices";
  return "";
}

// Tensors that one of the two has and inflation does not support: a large model without them would not have the cost of
// the shape, and one with them would not compute the small model's function. Empty: there are none.
std::string extras(const ModelConfig& small, const ModelConfig& shape) {
  const auto has_biases = [](const ModelConfig& m) { return m.qkv_bias || m.out_bias || m.mlp_bias; };
  for (const auto& [owner, m] : {std::pair("the small model", small), std::pair("the shape", shape)}) {
    if (m.head_norms) return std::string(owner) + " has norms of its heads (q_norm, k_norm)";
    if (has_biases(m)) return std::string(owner) + " has biases";
  }
  return "";
}

std::vector<std::int32_t> first(int small, int large) {
  std::vector<std::int32_t> places(std::size_t(large), -1);
  for (int i = 0; i < small; ++i) places[std::size_t(i)] = i;
  return places;
}

// The dimension of a large head that holds dimension d of a small one.
int rotated(int d, int small, int large) {
  const int half = small / 2;
  return (d < half ? 0 : large / 2) + d % half * (large / small);
}

// Rows of a matrix of queries (or, with `keys`, of keys), by head and dimension.
std::vector<std::int32_t> heads(const ModelConfig& small, const ModelConfig& large, bool keys, bool rotate) {
  const int copies = copies_of(small, large), group = small.heads / small.kv_heads, room = large.heads / large.kv_heads;
  std::vector<std::int32_t> places(std::size_t(keys ? large.kv_heads : large.heads) * large.head_size, -1);
  const auto put = [&](int head, int at) {
    for (int d = 0; d < small.head_size; ++d)
      places[std::size_t(at * large.head_size + (rotate ? rotated(d, small.head_size, large.head_size) : d))] =
          head * small.head_size + d;
  };
  for (int kv = 0; kv < small.kv_heads; ++kv)
    for (int copy = 0; copy < copies; ++copy) {
      const int at = kv * copies + copy;
      if (keys) put(kv, at);
      for (int q = copy * room; !keys && q < std::min(group, (copy + 1) * room); ++q)
        put(kv * group + q, at * room + q - copy * room);
    }
  return places;
}

float value(const Tensor& t, std::int64_t row, std::int64_t column) {
  if (t.dtype() == DType::f32) return t.row<float>(row)[column];
  if (t.dtype() == DType::bf16) return float(t.row<bf16>(row)[column]);
  if (t.dtype() == DType::f16) return float_from_f16(t.row<std::uint16_t>(row)[column]);
  throw Error(std::string("weights of type ") + name_of(t.dtype()) +
              " cannot be inflated; convert the checkpoint to F32, F16 or BF16");
}

void put(const Tensor& to, std::int64_t row, std::int64_t column, float x) {
  if (to.dtype() == DType::bf16)
    to.row<bf16>(row)[column] = bf16(x);
  else
    to.row<float>(row)[column] = x;
}

Tensor zeros(const Shape& shape, DType type) {
  const Tensor t = Tensor::host(shape, type);
  in_parallel(shape[0], t.bytes() / shape[0], [&](std::int64_t begin, std::int64_t end) {
    const Tensor rows = t.rows(begin, end - begin);
    std::memset(rows.raw(), 0, std::size_t(rows.bytes()));
  });
  return t;
}

// Sets the weights of the first `columns` inputs to zero in the unused rows of heads that are in use.
void silence(const Tensor& to, const std::vector<std::int32_t>& places, int head_size, int columns) {
  for (std::size_t head = 0; head < places.size(); head += std::size_t(head_size)) {
    const auto begin = places.begin() + std::ptrdiff_t(head), end = begin + head_size;
    if (std::all_of(begin, end, [](int from) { return from < 0; })) continue;
    for (int d = 0; d < head_size; ++d)
      for (int c = 0; places[head + std::size_t(d)] < 0 && c < columns; ++c) put(to, std::int64_t(head) + d, c, 0);
  }
}

}  // namespace

InflatedWeights::InflatedWeights(std::shared_ptr<const TensorSource> small, const ModelConfig& small_config,
                                 const ModelConfig& shape, const std::string& small_name, const std::string& shape_name,
                                 bool wide, std::function<void()> between)
    : small_tensors_(std::move(small)), small_(small_config), large_(small_config), random_(kSeed, std::move(between)) {
  const auto refuse = [&](const std::string& why, const std::string& remedy = "choose a larger shape") {
    throw Error("the model " + small_name + " cannot be inflated to " + shape_name + ": " + why + "; " + remedy);
  };
  if (const std::string what = extras(small_, shape); !what.empty())
    refuse(what + ", which inflation does not know", "choose a model and a shape without them, as those of Llama");
  if (const std::string why = obstacle(small_, shape); !why.empty()) refuse(why);
  expect_no_other_tensors(small_, *small_tensors_);
  large_.vocab = shape.vocab, large_.width = shape.width, large_.layers = shape.layers, large_.ffn = shape.ffn;
  large_.heads = shape.heads, large_.kv_heads = shape.kv_heads, large_.head_size = shape.head_size;
  large_.tied_head = shape.tied_head;
  large_.positions = std::min(small_.positions, shape.positions);
  if (!same_rotation(small_, large_)) refuse("its rotation does not keep the frequencies of larger heads");
  const Tensor table = small_tensors_->tensor("model.embed_tokens.weight", {small_.vocab, small_.width});
  if (table.dtype() == DType::bf16 && !wide) type_ = DType::bf16;
  const double sum = small_.norm_epsilon * small_.width;
  if (large_.vocab > small_.vocab) constant_ = float(bf16(float(std::sqrt(sum / (2 * kConstants)))));
  large_.norm_epsilon = (sum - kConstants * double(constant_) * double(constant_)) / large_.width;
  width_ = first(small_.width, large_.width), ffn_ = first(small_.ffn, large_.ffn);
  tokens_ = first(small_.vocab, large_.vocab);
  queries_ = heads(small_, large_, false, true), keys_ = heads(small_, large_, true, true);
  values_ = heads(small_, large_, true, false), outputs_ = heads(small_, large_, false, false);
}

Tensor InflatedWeights::random(const std::string& name, const Shape& shape) const {
  const Tensor t = Tensor::host(shape, type_);
  random_.fill(name, t);
  return t;
}

Tensor InflatedWeights::small_matrix(const std::string& name, const Indices& rows, const Indices& columns) const {
  return small_tensors_->tensor(name, {std::ranges::max(rows) + 1, std::ranges::max(columns) + 1});
}

void InflatedWeights::scatter(const std::string& name, const Indices& rows, const Indices& columns, float factor,
                              Tensor to) const {
  const Tensor from = small_matrix(name, rows, columns);
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t c = 0; rows[r] >= 0 && c < columns.size(); ++c)
      if (columns[c] >= 0) put(to, std::int64_t(r), std::int64_t(c), factor * value(from, rows[r], columns[c]));
}

Tensor InflatedWeights::embedding(const std::string& name, const Shape& expected, const std::string& small_name,
                                  float constant) const {
  const Tensor to = random(name, expected);
  std::memset(to.raw(), 0, std::size_t(to.rows(0, small_.vocab).bytes()));
  scatter(small_name, tokens_, width_, 1, to);
  for (int t = 0; constant_ > 0 && t < large_.vocab; ++t) {
    put(to, t, large_.width - 2, t < small_.vocab ? constant : -kNever);
    put(to, t, large_.width - 1, t < small_.vocab ? constant : kNever);
  }
  return to;
}

Tensor InflatedWeights::gains(const std::string& name, bool last) const {
  const Tensor from = small_tensors_->tensor(name, {small_.width}).reshaped({1, small_.width});
  const Tensor to = Tensor::host({large_.width}, DType::f32);
  const double ratio = std::sqrt(double(small_.width) / large_.width);
  for (int i = 0; i < large_.width; ++i)
    to.data<float>()[i] = i < small_.width ? float(double(value(from, 0, i)) * ratio) : 1.0f;
  if (constant_ == 0) return to;
  const float gain = last ? float(kFeature * ratio / constant_) : 0.0f;
  to.data<float>()[large_.width - 2] = gain, to.data<float>()[large_.width - 1] = -gain;
  return to;
}

Tensor InflatedWeights::part_of_a_layer(const std::string& name, const Shape& expected, const std::string& part) const {
  if (part == "self_attn.o_proj.weight" || part == "mlp.down_proj.weight") {
    const Tensor to = zeros(expected, type_);
    if (part == "mlp.down_proj.weight")
      scatter(name, width_, ffn_, 1, to);
    else
      scatter(name, width_, outputs_, 1, to);
    return to;
  }
  const Tensor to = random(name, expected);
  if (part == "self_attn.q_proj.weight") {
    silence(to, queries_, large_.head_size, small_.width);
    scatter(name, queries_, width_, std::sqrt(float(large_.head_size) / float(small_.head_size)), to);
  } else if (part == "self_attn.k_proj.weight") {
    scatter(name, keys_, width_, 1, to);
  } else if (part == "self_attn.v_proj.weight") {
    silence(to, values_, large_.head_size, small_.width);
    scatter(name, values_, width_, 1, to);
  } else if (part == "mlp.gate_proj.weight" || part == "mlp.up_proj.weight") {
    scatter(name, ffn_, width_, 1, to);
  } else {
    throw Error("a model with the tensor '" + name + "' cannot be inflated");
  }
  return to;
}

std::vector<std::string> InflatedWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, shape] : tensors_of(large_)) names.push_back(name);
  return names;
}

Tensor InflatedWeights::tensor(const std::string& name, const Shape& expected) const {
  const std::string table = "model.embed_tokens.weight", head = "lm_head.weight";
  if (name == table) return embedding(name, expected, table, constant_);
  if (name == head) return embedding(name, expected, small_.tied_head ? table : head, 0);
  if (name == "model.norm.weight") return gains(name, true);
  const std::string at = "model.layers.";
  const auto dot = name.starts_with(at) ? name.find('.', at.size()) : std::string::npos;
  if (dot == std::string::npos) throw Error("a model with the tensor '" + name + "' cannot be inflated");
  const std::string part = name.substr(dot + 1);
  const bool extra = std::stoi(name.substr(at.size(), dot - at.size())) >= small_.layers;
  if (part.ends_with("norm.weight")) return extra ? random_.tensor(name, expected) : gains(name, false);
  if (!extra) return part_of_a_layer(name, expected, part);
  return part.find("o_proj") != std::string::npos || part.find("down_proj") != std::string::npos
             ? zeros(expected, type_)
             : random(name, expected);
}

}  // namespace foretoken
