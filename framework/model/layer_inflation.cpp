#include "framework/model/layer_inflation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "framework/model/in_parallel.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr std::uint64_t kSeed = 1;  // of the random weights around the small model
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

int constants_of(const ModelConfig& small, const ModelConfig& shape) {
  return shape.vocab > small.vocab ? kConstants : 0;
}

// Why the shape cannot hold the small model; empty: it can.
std::string obstacle(const ModelConfig& small, const ModelConfig& shape) {
  const auto lacks = [](const std::string& what, std::int64_t has, std::int64_t needs) {
    return "it has " + number(has) + " " + what + ", and " + number(needs) + " are needed";
  };
  const int constants = constants_of(small, shape);
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

// Tensors that only one of the two has: a large model without them would not compute the small model's function, and
// one with them would not have the cost of the shape. Empty: there are none.
std::string extras(const ModelConfig& small, const ModelConfig& shape) {
  const auto biases = [](const ModelConfig& m) { return std::array{m.qkv_bias, m.out_bias, m.mlp_bias}; };
  if (small.head_norms != shape.head_norms)
    return std::string(small.head_norms ? "the small model" : "the shape") + " has norms of its heads (q_norm, k_norm)";
  if (biases(small) != biases(shape))
    return std::string(biases(small) > biases(shape) ? "the small model" : "the shape") + " has biases";
  return "";
}

// A piece of a transformer that no inflated model has; empty: there is none. A shape's matrices may be fused: the
// products are the same.
std::string unsupported_piece(const ModelConfig& m, bool small) {
  if (m.latent) return "latent attention";
  if (m.post_norms) return "norms behind its sublayers";
  if (m.activation != Activation::silu) return "gated products of another activation than silu";
  if (m.attention_softcap > 0 || m.logit_softcap > 0) return "caps of its scores or logits";
  if (m.scaled_embedding || m.gains_less_one) return "scaled embeddings, or gains less 1";
  if (!m.global_layers.empty() || m.local_theta > 0) return "windows in some of its layers";
  if (small && (m.fused || m.rotary > 0)) return "fused matrices, or heads that are rotated in part";
  return "";
}

// The dimension of a large head that holds dimension d of a small one.
int rotated(int d, int small, int large) {
  const int half = small / 2;
  return (d < half ? 0 : large / 2) + d % half * (large / small);
}

// Rows of a matrix of queries (or, with `keys`, of keys), by head and dimension.
Places heads(const ModelConfig& small, const ModelConfig& large, bool keys, bool rotate) {
  const int copies = copies_of(small, large), group = small.heads / small.kv_heads, room = large.heads / large.kv_heads;
  Places places(std::size_t(keys ? large.kv_heads : large.heads) * large.head_size, -1);
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

Tensor zeros(const Shape& shape, DType type) {
  const Tensor t = Tensor::host(shape, type);
  in_parallel(shape[0], t.bytes() / shape[0], [&](std::int64_t begin, std::int64_t end) {
    const Tensor rows = t.rows(begin, end - begin);
    std::memset(rows.raw(), 0, std::size_t(rows.bytes()));
  });
  return t;
}

// Sets the weights of the first `columns` inputs to zero in the unused rows of heads that are in use.
void silence(const Tensor& to, const Places& places, int head_size, int columns) {
  for (std::size_t head = 0; head < places.size(); head += std::size_t(head_size)) {
    const auto begin = places.begin() + std::ptrdiff_t(head), end = begin + head_size;
    if (std::all_of(begin, end, [](int from) { return from < 0; })) continue;
    for (int d = 0; d < head_size; ++d)
      for (int c = 0; places[head + std::size_t(d)] < 0 && c < columns; ++c)
        set_element(to, std::int64_t(head) + d, c, 0);
  }
}

// Norms of heads divide q and k by their magnitude, of which their epsilon is the share that it has in the small model
// where q and k are multiplied by this. A power of two rounds no weight.
float factor_of_normed_heads(const ModelConfig& small, const ModelConfig& large, bool exact) {
  const double factor = std::sqrt(large.norm_epsilon * large.head_size / (small.norm_epsilon * small.head_size));
  return float(exact ? factor : std::exp2(std::round(std::log2(factor))));
}

[[noreturn]] void refuse_tensor(const std::string& name) {
  throw Error("a model with the tensor '" + name + "' cannot be inflated");
}

}  // namespace

void set_element(const Tensor& to, std::int64_t row, std::int64_t column, float x) {
  if (to.dtype() == DType::bf16)
    to.row<bf16>(row)[column] = bf16(x);
  else
    to.row<float>(row)[column] = x;
}

Places first_places(int small, int large, int blocks) {
  Places places(std::size_t(large) * std::size_t(blocks), -1);
  for (int block = 0; block < blocks; ++block)
    for (int i = 0; i < small; ++i)
      places[std::size_t(block) * std::size_t(large) + std::size_t(i)] = block * small + i;
  return places;
}

ModelConfig inflated_config(const ModelConfig& small, const ModelConfig& shape, const std::string& small_name,
                            const std::string& shape_name) {
  const auto refuse = [&](const std::string& why, const std::string& remedy = "choose a larger shape") {
    throw Error(small_name + " cannot be inflated to " + shape_name + ": " + why + "; " + remedy);
  };
  if (small.mixture || shape.mixture)
    refuse(std::string(small.mixture ? "the small model" : "the shape") + " is a mixture of experts",
           "choose a dense model and a dense shape, or random weights of the shape");
  for (const bool is_small : {true, false})
    if (const std::string piece = unsupported_piece(is_small ? small : shape, is_small); !piece.empty())
      refuse((is_small ? "the small model has " : "the shape has ") + piece,
             "choose a model and a shape of the Llama family without them, or random weights of the shape");
  if (const std::string what = extras(small, shape); !what.empty())
    refuse(what + ", and the other one has none", "choose a model and a shape of one family");
  if (const std::string why = obstacle(small, shape); !why.empty()) refuse(why);
  ModelConfig large = small;
  large.vocab = shape.vocab, large.width = shape.width, large.layers = shape.layers, large.ffn = shape.ffn;
  large.heads = shape.heads, large.kv_heads = shape.kv_heads, large.head_size = shape.head_size;
  large.tied_head = shape.tied_head;
  large.positions = std::min(small.positions, shape.positions);
  if (!same_rotation(small, large)) refuse("its rotation does not keep the frequencies of larger heads");
  large.norm_epsilon = small.norm_epsilon * small.width / large.width;
  large.small = SmallModel{small.vocab, small.width, small.layers, constants_of(small, shape)};
  return large;
}

LayerInflation::LayerInflation(std::shared_ptr<const TensorSource> small_tensors, const ModelConfig& small,
                               const ModelConfig& large, const Tensor& like, bool wide, std::function<void()> between)
    : small_tensors_(std::move(small_tensors)),
      small_(small),
      large_(large),
      random_(kSeed, std::move(between)),
      type_(like.dtype() == DType::bf16 && !wide ? DType::bf16 : DType::f32),
      width_(first_places(small.width, large.width)),
      ffn_(first_places(small.ffn, large.ffn)),
      queries_(heads(small, large, false, true)),
      keys_(heads(small, large, true, true)),
      values_(heads(small, large, true, false)),
      outputs_(heads(small, large, false, false)) {
  if (small_.head_norms)
    query_factor_ = key_factor_ = factor_of_normed_heads(small_, large_, type_ == DType::f32);
  else
    query_factor_ = std::sqrt(float(large_.head_size) / float(small_.head_size));
}

void LayerInflation::scatter(const std::string& name, const Places& rows, const Places& columns, float factor,
                             Tensor to) const {
  const Tensor from = small_tensors_->tensor(name, {std::ranges::max(rows) + 1, std::ranges::max(columns) + 1});
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t c = 0; rows[r] >= 0 && c < columns.size(); ++c)
      if (columns[c] >= 0) set_element(to, std::int64_t(r), std::int64_t(c), factor * value(from, rows[r], columns[c]));
}

Tensor LayerInflation::random(const std::string& name, const Shape& expected) const {
  const Tensor to = Tensor::host(expected, type_);
  random_.fill(name, to);
  return to;
}

Tensor LayerInflation::table(const std::string& name, const std::string& from, const Shape& expected,
                             const Places& rows, const Places& columns) const {
  const Tensor to = random(name, expected);
  std::memset(to.raw(), 0, std::size_t(to.rows(0, std::ranges::max(rows) + 1).bytes()));
  scatter(from, rows, columns, 1, to);
  return to;
}

Tensor LayerInflation::sum(const std::string& name, const Shape& expected, const Places& rows,
                           const Places& columns) const {
  const Tensor to = zeros(expected, type_);
  scatter(name, rows, columns, 1, to);
  return to;
}

Tensor LayerInflation::vector(const std::string& name, const Shape& expected, const Places& places,
                              float factor) const {
  const std::int64_t n = std::ranges::max(places) + 1;
  const Tensor from = small_tensors_->tensor(name, {n}).reshaped({1, n}), to = zeros(expected, DType::f32);
  for (std::size_t i = 0; i < places.size(); ++i)
    if (places[i] >= 0) to.data<float>()[i] = factor * value(from, 0, places[i]);
  return to;
}

Tensor LayerInflation::gains(const std::string& name, const Shape& expected, float constant) const {
  const int blocks = int(expected[0] / large_.width);
  const std::int64_t n = std::int64_t(small_.width) * blocks;
  const Tensor from = small_tensors_->tensor(name, {n}).reshaped({1, n}), to = Tensor::host(expected, DType::f32);
  const Places places = first_places(small_.width, large_.width, blocks);
  const double ratio = std::sqrt(double(small_.width) / large_.width);
  float* const gains = to.data<float>();
  for (std::size_t i = 0; i < places.size(); ++i)
    gains[i] = places[i] < 0 ? 1.0f : float(double(value(from, 0, places[i])) * ratio);
  for (int end = large_.width; large_.small->constants > 0 && end <= int(places.size()); end += large_.width)
    gains[end - 2] = constant, gains[end - 1] = -constant;
  return to;
}

// Of queries they also stand for the factor sqrt(large / small), by which the others' weights are multiplied.
Tensor LayerInflation::head_gains(const std::string& name, bool queries) const {
  const Tensor to = Tensor::host({large_.head_size}, DType::f32);
  std::ranges::fill(to.values<float>(), 1.0f);
  const Tensor from = small_tensors_->tensor(name, {small_.head_size}).reshaped({1, small_.head_size});
  const double ratio = queries ? 1 : std::sqrt(double(small_.head_size) / large_.head_size);
  for (int d = 0; d < small_.head_size; ++d)
    to.data<float>()[rotated(d, small_.head_size, large_.head_size)] = float(double(value(from, 0, d)) * ratio);
  return to;
}

// Of q, k, v and the hidden units: random where its inputs are zero, or its outputs are ignored.
Tensor LayerInflation::projection(const std::string& name, const std::string& part, const Shape& expected) const {
  struct Kind {
    const char* module;
    const Places& rows;
    float factor = 1;
    bool silent = false;  // in unused rows of heads in use
  };
  for (const Kind& k :
       {Kind{"self_attn.q_proj.", queries_, query_factor_, true},
        Kind{"self_attn.k_proj.", keys_, key_factor_, small_.head_norms}, Kind{"self_attn.v_proj.", values_, 1, true},
        Kind{"mlp.gate_proj.", ffn_}, Kind{"mlp.up_proj.", ffn_}}) {
    if (!part.starts_with(k.module)) continue;
    if (part.ends_with(".bias")) return vector(name, expected, k.rows, k.factor);
    const Tensor to = random(name, expected);
    if (k.silent) silence(to, k.rows, large_.head_size, small_.width);
    scatter(name, k.rows, width_, k.factor, to);
    return to;
  }
  refuse_tensor(name);
}

Tensor LayerInflation::layer(const std::string& name, const Shape& expected) const {
  const std::string at = "layers.";
  const auto begin = name.find(at), dot = begin == name.npos ? begin : name.find('.', begin + at.size());
  if (dot == name.npos) refuse_tensor(name);
  const std::string part = name.substr(dot + 1);
  const bool attends = part.starts_with("self_attn.o_proj."), adds = attends || part.starts_with("mlp.down_proj.");
  const bool is_matrix = expected.rank() == 2;
  if (std::stoi(name.substr(begin + at.size())) >= small_.layers) {
    if (adds) return zeros(expected, is_matrix ? type_ : DType::f32);
    return is_matrix ? random(name, expected) : random_.tensor(name, expected);
  }
  if (adds && is_matrix) return sum(name, expected, width_, attends ? outputs_ : ffn_);
  if (adds) return vector(name, expected, width_);
  if (part == "self_attn.q_norm.weight" || part == "self_attn.k_norm.weight")
    return head_gains(name, part == "self_attn.q_norm.weight");
  if (part.ends_with("norm.weight")) return gains(name, expected);
  return projection(name, part, expected);
}

}  // namespace foretoken
