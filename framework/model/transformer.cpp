#include "framework/model/transformer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <tuple>
#include <utility>

#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"
#include "framework/model/model_tensors.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {

std::vector<std::string> weight_types() {
  std::vector<std::string> types{"auto", "f32", "bf16"};
  for (const Precision& p : precisions()) types.push_back(p.name);
  return types;
}

// Loads tensors by their Hugging Face names, in the requested type, to the backend's device.
class Transformer::Loader {
 public:
  Loader(Backend& backend, const ModelConfig& config, const TensorSource& tensors, const TransformerOptions& options)
      : backend_(backend), shapes_(tensors_of(config)), tensors_(tensors), options_(options) {
    expect_no_other_tensors(config, tensors);
    expect_type("dtype", options.dtype);
    expect_type("head_dtype", options.head_dtype);
  }

  Tensor vector(const std::string& name) const {
    return backend_.upload(converted(tensors_.tensor(name, shapes_.at(name)), DType::f32));
  }
  bool has(const std::string& name) const { return shapes_.contains(name); }
  // Several matrices (NAME.weight) with the same inputs, one above the other, and their biases (NAME.bias). Apart where
  // a checkpoint stores them in different formats, or rounds their inputs differently; then their dense copies are
  // apart too, since a device may add in another order where a matrix has more outputs.
  Products products(const std::vector<std::string>& names) const {
    Products all{stacked(names, options_.dtype)};
    if (all.parts.size() > 1) all.type = type_of(all.parts);
    return all;
  }
  Weight one(const std::string& name) const { return stacked({name}, options_.dtype).front(); }
  // The embedding and the head. Tied ones are in memory once: quantized ones as the head's codes, dense ones wherever
  // the device multiplies the table as it was uploaded.
  std::pair<Weight, Weight> ends(bool tied) const {
    const std::string table = "model.embed_tokens", type = head_type();
    if (!tied)
      return {uploaded(tensors_.tensor(table + ".weight", shapes_.at(table + ".weight"))),
              stacked({"lm_head"}, type).front()};
    const Weight stored = matrix(table, type);
    const auto biased = [&](Weight head) {
      if (has("lm_head.bias")) head.bias = biases(std::array{std::string("lm_head")}, head.out);
      return head;
    };
    if (stored.format) {
      const Weight head = prepared(biased(stored));
      return {head, head};
    }
    const Weight embedding = uploaded(in_input_order(stored).values);
    const bool same = dense_type(stored.values, type) == embedding.values.dtype();
    return {embedding, prepared(biased(same ? embedding : one_above_the_other({stored}, type)))};
  }
  std::int64_t bytes() const { return bytes_; }
  // Of the embedding, where the head has memory of its own.
  static std::int64_t table_bytes(const Weight& embedding, const Weight& head) {
    if (!embedding.values || embedding.values.raw() == head.values.raw()) return 0;
    const auto* const matrix = dynamic_cast<const PreparedMatrix*>(head.prepared.get());
    return matrix && matrix->matrix.raw() == embedding.values.raw() ? 0 : embedding.values.bytes();
  }

 private:
  // Of products that stand side by side: what the device gives; f32 where one of them is.
  DType type_of(const std::vector<Weight>& parts) const {
    const auto is_wide = [&](const Weight& w) { return backend_.activation_type(w) == DType::f32; };
    return std::ranges::any_of(parts, is_wide) ? DType::f32 : DType::bf16;
  }
  static void expect_type(const std::string& key, const std::string& type) {
    const std::vector<std::string> known = weight_types();
    if (std::ranges::find(known, type) == known.end())
      throw Error("unknown " + key + " '" + type + "'; known: " + listed(known));
  }
  std::string head_type() const {
    const bool as_layers = options_.head_dtype == "auto" && !find_precision(options_.dtype);
    return as_layers ? options_.dtype : options_.head_dtype;
  }
  // A table, on the device.
  Weight uploaded(const Tensor& t) const {
    return Weight::dense(backend_.upload(converted(t, dense_type(t, options_.dtype))));
  }
  Weight prepared(Weight w) const {
    w = backend_.prepare(std::move(w));
    bytes_ += w.bytes();
    return w;
  }
  std::vector<Weight> stacked(const std::vector<std::string>& names, const std::string& type) const {
    std::vector<Weight> stored, all;
    for (const std::string& name : names) stored.push_back(tensors_.matrix(name, shapes_.at(name + ".weight")));
    for (std::size_t begin = 0, end = 0; begin < names.size(); begin = end) {
      for (end = begin + 1; end < names.size() && stackable(std::span(stored).subspan(begin, end + 1 - begin));) ++end;
      std::vector<Weight> run;
      for (std::size_t i = begin; i < end; ++i) run.push_back(loaded(names[i], stored[i], type));
      Weight w = run.front().format ? foretoken::stacked(run) : one_above_the_other(run, type);
      if (has(names[begin] + ".bias")) w.bias = biases(std::span(names).subspan(begin, end - begin), w.out);
      all.push_back(prepared(std::move(w)));
    }
    return all;
  }
  Weight matrix(const std::string& name, const std::string& type) const {
    return loaded(name, tensors_.matrix(name, shapes_.at(name + ".weight")), type);
  }
  // As stored, or rounded to the format `type`, or dequantized to the dense type. A format with rounded inputs rounds
  // those of stored codes too. Codes of another format are not rounded anew.
  Weight loaded(const std::string& name, const Weight& stored, const std::string& type) const {
    const Precision* precision = find_precision(type);
    if (stored.format && type != "auto" && !precision) return dequantized(stored, by_all_cores);
    if (!precision) return stored;
    try {
      return rounded(stored, *precision);
    } catch (const Error& e) {
      throw Error(tensors_.where() + ": dtype '" + type + "' and the matrix '" + name + "': " + e.what());
    }
  }
  static Weight rounded(const Weight& stored, const Precision& precision) {
    if (!stored.format) {
      const Tensor values = converted(stored.values, dense_type(stored.values, "auto"));
      return quantize(Weight::dense(values), precision, by_all_cores);
    }
    if (stored.format != precision.weights)
      throw Error("it is stored as " + stored.format->name() + ", which is not rounded to " +
                  precision.weights->name() + "; choose auto, " + stored.format->name() + ", bf16 or f32");
    return precision.activations ? with_activations(stored, *precision.activations) : stored;
  }
  // Dense matrices.
  static Weight one_above_the_other(const std::vector<Weight>& parts, const std::string& dtype) {
    std::int64_t out = 0;
    DType type = DType::bf16;
    for (const Weight& p : parts) {
      if (dense_type(p.values, dtype) != DType::bf16) type = DType::f32;
      out += p.out;
    }
    Weight all = parts[0];
    all.values = parts.size() == 1 ? converted(parts[0].values, type) : Tensor::host({out, all.in}, type);
    all.out = out;
    if (parts.size() == 1) return all;
    std::int64_t at = 0;
    for (const Weight& p : parts) {
      convert(p.values, all.values.rows(at, p.out));
      at += p.out;
    }
    return all;
  }
  Tensor biases(std::span<const std::string> names, std::int64_t out) const {
    const Tensor all = Tensor::host({out}, DType::f32);
    std::int64_t at = 0;
    for (const std::string& name : names) {
      const Tensor b = tensors_.tensor(name + ".bias", shapes_.at(name + ".bias"));
      convert(b, all.rows(at, b.dim(0)));
      at += b.dim(0);
    }
    return all;  // Backend::prepare brings it to the device
  }
  // bf16 where the tensor has it, else f32, unless `dtype` requests one of them.
  static DType dense_type(const Tensor& t, const std::string& dtype) {
    if (dtype == "f32") return DType::f32;
    if (dtype == "bf16") return DType::bf16;
    return t.dtype() == DType::bf16 ? DType::bf16 : DType::f32;
  }

  Backend& backend_;
  const std::map<std::string, Shape> shapes_;
  const TensorSource& tensors_;
  const TransformerOptions& options_;
  mutable std::int64_t bytes_ = 0;
};

namespace {

DType cache_type(const std::string& name, const Backend& backend) {
  if (name == "auto") return backend.name() == "reference" ? DType::f32 : DType::bf16;
  if (name == "f32") return DType::f32;
  if (name == "bf16") return DType::bf16;
  if (name == "int8") return DType::i8;
  if (name == "fp8") return DType::e4m3;
  unknown_name("kv_dtype", name, cache_types());
}

}  // namespace

const std::vector<std::string>& cache_types() {
  static const std::vector<std::string> all{"auto", "f32", "bf16", "int8", "fp8"};
  return all;
}

ModelInfo model_info(const ModelConfig& c, const Backend& backend, std::string name, std::uint64_t vocabulary,
                     const std::string& kv_dtype) {
  const KvShape kv{c.layers, c.kv_heads, c.head_size, cache_type(kv_dtype, backend), c.window};
  kv.expect_heads(name);
  return {std::move(name), c.vocab, c.positions, kv, vocabulary, {c.eos.begin(), c.eos.end()}, 0};
}

Transformer::Transformer(Backend& backend, const ModelConfig& c, const TensorSource& tensors, std::string name,
                         std::uint64_t vocabulary, const TransformerOptions& options)
    : config_(c), info_(model_info(c, backend, std::move(name), vocabulary, options.kv_dtype)) {
  const Loader load(backend, c, tensors, options);
  std::tie(embedding_, head_) = load.ends(c.tied_head);
  final_norm_ = load.vector("model.norm.weight");
  for (int l = 0; l < c.layers; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    const std::string attn = at + "self_attn.", mlp = at + "mlp.";
    const auto head_norm = [&](const std::string& name) { return load.has(name) ? load.vector(name) : Tensor(); };
    layers_.push_back({load.vector(at + "input_layernorm.weight"), load.vector(at + "post_attention_layernorm.weight"),
                       head_norm(attn + "q_norm.weight"), head_norm(attn + "k_norm.weight"),
                       load.products({attn + "q_proj", attn + "k_proj", attn + "v_proj"}), load.one(attn + "o_proj"),
                       load.products({mlp + "gate_proj", mlp + "up_proj"}), load.one(mlp + "down_proj")});
  }
  const auto frequencies = c.rope_frequencies();
  frequencies_ = backend.upload(Tensor::host_copy<float>(frequencies, DType::f32));
  info_.weight_bytes = load.bytes(), info_.table_bytes = Loader::table_bytes(embedding_, head_);
}

// norm_linear of matrices that stand one above the other, in one Weight or apart.
Tensor Transformer::norm_products(Backend& b, const Tensor& x, const Tensor& gain, const Products& all) const {
  const float epsilon = float(config_.norm_epsilon);
  if (all.parts.size() == 1) return b.norm_linear(x, gain, epsilon, all.parts.front());
  std::int64_t out = 0, at = 0;
  for (const Weight& w : all.parts) out += w.out;
  const Tensor y = b.allocate({x.dim(0), out}, all.type);
  for (const Weight& w : all.parts) {
    b.norm_linear_to(y.columns(at, w.out), x, gain, epsilon, w);
    at += w.out;
  }
  return y;
}

Tensor Transformer::attention(Backend& b, const Tensor& x, const Layer& layer, const Rows& rows,
                              const KvLayer& kv) const {
  const std::int64_t nq = std::int64_t(config_.heads) * config_.head_size,
                     nkv = std::int64_t(config_.kv_heads) * config_.head_size;
  const Tensor qkv = norm_products(b, x, layer.attention_norm, layer.qkv);  // [rows, nq + 2 nkv]
  const Tensor q = qkv.columns(0, nq), k = qkv.columns(nq, nkv), v = qkv.columns(nq + nkv, nkv);
  if (layer.q_norm) {
    b.head_norm(q, layer.q_norm, float(config_.norm_epsilon));
    b.head_norm(k, layer.k_norm, float(config_.norm_epsilon));
  }
  return b.rope_attend(q, k, v, kv, rows.layout, frequencies_,
                       1.0f / std::sqrt(float(config_.head_size)));  // [rows, nq]
}

Output Transformer::forward(Backend& b, const Rows& rows, std::span<const KvLayer> kv) {
  expect_tokens_alone(rows, info_.name);
  const float epsilon = float(config_.norm_epsilon);
  Tensor x = b.embed(embedding_, rows.tokens);  // [rows, width]
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    b.linear_add(x, attention(b, x, layer, rows, kv[l]), layer.out);
    if (layer.gate_up.parts.size() == 1)
      b.feed_forward(x, layer.ffn_norm, epsilon, layer.gate_up.parts.front(), layer.down);
    else
      b.linear_add(x, b.silu_mul(norm_products(b, x, layer.ffn_norm, layer.gate_up)), layer.down);
  }
  if (!rows.wanted) return {};
  if (!rows.all_wanted) x = b.gather(x, rows.wanted);
  if (!rows.logits) return {b.linear(b.rms_norm(x, final_norm_, epsilon), head_)};
  b.norm_linear_to(rows.logits, x, final_norm_, epsilon, head_);
  return {rows.logits};  // [wanted, vocab]
}

}  // namespace foretoken
