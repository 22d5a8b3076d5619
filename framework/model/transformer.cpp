#include "framework/model/transformer.h"

#include <cmath>

#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"
#include "framework/model/model_tensors.h"
#include "kernels/error.h"

namespace foretoken {

// Loads tensors by their Hugging Face names, in the requested type, to the backend's device.
class Transformer::Loader {
 public:
  Loader(Backend& backend, const ModelConfig& config, const TensorSource& tensors, const TransformerOptions& options)
      : backend_(backend), shapes_(tensors_of(config)), tensors_(tensors), options_(options) {
    expect_no_other_tensors(config, tensors);
    for (const char* known : {"auto", "f32", "bf16", "int8"})
      if (options.dtype == known) return;
    throw Error("unknown dtype '" + options.dtype + "'; known: auto, f32, bf16, int8");
  }

  Tensor vector(const std::string& name) const {
    return backend_.upload(converted(tensors_.tensor(name, shapes_.at(name)), DType::f32));
  }
  Tensor table(const std::string& name) const {
    const Tensor t = tensors_.tensor(name, shapes_.at(name));
    return backend_.upload(converted(t, stored_type(t)));
  }
  bool has(const std::string& name) const { return shapes_.contains(name); }
  // Several matrices (NAME.weight) with the same inputs, one above the other, and their biases (NAME.bias).
  Weight stacked(const std::vector<std::string>& names) const {
    std::vector<Tensor> parts;
    std::int64_t out = 0;
    DType type = DType::bf16;
    for (const std::string& name : names) {
      parts.push_back(tensors_.tensor(name + ".weight", shapes_.at(name + ".weight")));
      if (stored_type(parts.back()) != DType::bf16) type = DType::f32;
      out += parts.back().dim(0);
    }
    Weight w = Weight::dense(one_above_the_other(parts, out, type));
    if (options_.dtype == "int8") w = quantize_int8(w, w.in % 64 == 0 ? 64 : 32, by_all_cores);
    if (has(names.front() + ".bias")) w.bias = biases(names, out);
    return prepared(std::move(w));
  }
  // The head. One that is tied to the embedding uses the memory in which the device already has it.
  Weight head(const ModelConfig& c, const Tensor& embedding) const {
    if (c.tied_head && options_.dtype != "int8") return prepared(Weight::dense(embedding));
    return stacked({c.tied_head ? "model.embed_tokens" : "lm_head"});
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  static void by_all_cores(std::int64_t n, std::int64_t work,
                           const std::function<void(std::int64_t, std::int64_t)>& f) {
    in_parallel(n, work, f);
  }
  Weight prepared(Weight w) const {
    w = backend_.prepare(std::move(w));
    bytes_ += w.bytes();
    return w;
  }
  static Tensor one_above_the_other(const std::vector<Tensor>& parts, std::int64_t out, DType type) {
    if (parts.size() == 1) return converted(parts[0], type);
    const Tensor all = Tensor::host({out, parts[0].dim(1)}, type);
    std::int64_t at = 0;
    for (const Tensor& p : parts) {
      convert(p, all.rows(at, p.dim(0)));
      at += p.dim(0);
    }
    return all;
  }
  Tensor biases(const std::vector<std::string>& names, std::int64_t out) const {
    const Tensor all = Tensor::host({out}, DType::f32);
    std::int64_t at = 0;
    for (const std::string& name : names) {
      const Tensor b = tensors_.tensor(name + ".bias", shapes_.at(name + ".bias"));
      convert(b, all.rows(at, b.dim(0)));
      at += b.dim(0);
    }
    return all;  // Backend::prepare brings it to the device
  }
  DType stored_type(const Tensor& t) const {
    if (options_.dtype == "f32") return DType::f32;
    if (options_.dtype == "bf16") return DType::bf16;
    return t.dtype() == DType::bf16 ? DType::bf16 : DType::f32;
  }

  Backend& backend_;
  const std::map<std::string, Shape> shapes_;
  const TensorSource& tensors_;
  const TransformerOptions& options_;
  mutable std::int64_t bytes_ = 0;
};

ModelInfo model_info(const ModelConfig& c, const Backend& backend, std::string name, std::uint64_t vocabulary,
                     const std::string& kv_dtype) {
  const bool wide = kv_dtype == "f32" || (kv_dtype == "auto" && backend.name() == "reference");
  if (!wide && kv_dtype != "auto" && kv_dtype != "bf16")
    throw Error("unknown kv_dtype '" + kv_dtype + "'; known: auto, f32, bf16");
  return {std::move(name),
          c.vocab,
          c.positions,
          {c.layers, c.kv_heads, c.head_size, wide ? DType::f32 : DType::bf16, c.window},
          vocabulary,
          {c.eos.begin(), c.eos.end()},
          0};
}

Transformer::Transformer(Backend& backend, const ModelConfig& c, const TensorSource& tensors, std::string name,
                         std::uint64_t vocabulary, const TransformerOptions& options)
    : config_(c) {
  const Loader load(backend, c, tensors, options);
  embedding_ = load.table("model.embed_tokens.weight");
  head_ = load.head(c, embedding_);
  final_norm_ = load.vector("model.norm.weight");
  for (int l = 0; l < c.layers; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    const std::string attn = at + "self_attn.", mlp = at + "mlp.";
    const auto head_norm = [&](const std::string& name) { return load.has(name) ? load.vector(name) : Tensor(); };
    layers_.push_back({load.vector(at + "input_layernorm.weight"), load.vector(at + "post_attention_layernorm.weight"),
                       head_norm(attn + "q_norm.weight"), head_norm(attn + "k_norm.weight"),
                       load.stacked({attn + "q_proj", attn + "k_proj", attn + "v_proj"}),
                       load.stacked({attn + "o_proj"}), load.stacked({mlp + "gate_proj", mlp + "up_proj"}),
                       load.stacked({mlp + "down_proj"})});
  }
  const auto frequencies = c.rope_frequencies();
  frequencies_ = backend.upload(Tensor::host_copy<float>(frequencies, DType::f32));
  info_ = model_info(c, backend, std::move(name), vocabulary, options.kv_dtype);
  info_.weight_bytes = load.bytes();
}

Tensor Transformer::attention(Backend& b, const Tensor& x, const Layer& layer, const Rows& rows,
                              const KvLayer& kv) const {
  const std::int64_t nq = std::int64_t(config_.heads) * config_.head_size,
                     nkv = std::int64_t(config_.kv_heads) * config_.head_size;
  const Tensor qkv =
      b.norm_linear(x, layer.attention_norm, float(config_.norm_epsilon), layer.qkv);  // [rows, nq + 2 nkv]
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
    b.feed_forward(x, layer.ffn_norm, epsilon, layer.gate_up, layer.down);
  }
  if (!rows.wanted) return {};
  if (!rows.all_wanted) x = b.gather(x, rows.wanted);
  if (!rows.logits) return {b.linear(b.rms_norm(x, final_norm_, epsilon), head_)};
  b.norm_linear_to(rows.logits, x, final_norm_, epsilon, head_);
  return {rows.logits};  // [wanted, vocab]
}

}  // namespace foretoken
