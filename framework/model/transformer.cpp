#include "framework/model/transformer.h"

#include <cmath>

#include "framework/model/in_parallel.h"
#include "kernels/error.h"

namespace foretoken {

// Reads tensors by their Hugging Face names, in the wanted type, on the wanted device.
class Transformer::Loader {
 public:
  Loader(Backend& backend, const TensorSource& tensors, const TransformerOptions& options)
      : backend_(backend), tensors_(tensors), options_(options) {
    for (const char* known : {"auto", "f32", "bf16", "int8"})
      if (options.dtype == known) return;
    throw Error("unknown dtype '" + options.dtype + "'; known: auto, f32, bf16, int8");
  }

  Tensor vector(const std::string& name, std::int64_t n) const {
    return backend_.upload(converted(tensors_.tensor(name, {n}), DType::f32));
  }
  Tensor table(const std::string& name, Shape shape) const {
    const Tensor t = tensors_.tensor(name, shape);
    return backend_.upload(converted(t, stored_type(t)));
  }
  // Several matrices (NAME.weight) with the same inputs, one above the other, and their biases (NAME.bias).
  Weight stacked(const std::vector<std::pair<std::string, std::int64_t>>& parts, std::int64_t in,
                 bool bias = false) const {
    std::vector<Tensor> pieces;
    std::int64_t out = 0;
    DType type = DType::bf16;
    for (const auto& [name, rows] : parts) {
      pieces.push_back(tensors_.tensor(name + ".weight", {rows, in}));
      if (stored_type(pieces.back()) != DType::bf16) type = DType::f32;
      out += rows;
    }
    Tensor all = pieces.size() == 1 ? converted(pieces[0], type) : Tensor::host({out, in}, type);
    if (pieces.size() > 1) {
      std::int64_t at = 0;
      for (const Tensor& p : pieces) {
        const Tensor c = converted(p, type);
        copy_rows(c, all.rows(at, c.dim(0)));
        at += c.dim(0);
      }
    }
    Weight w = Weight::dense(all);
    if (options_.dtype == "int8") w = quantize_int8(w, in % 64 == 0 ? 64 : 32);
    if (bias) w.bias = biases(parts, out);
    return prepared(std::move(w));
  }
  // The head: where it is the embedding's numbers, the memory in which the device has those already.
  Weight head(const ModelConfig& c, const Tensor& embedding) const {
    if (c.tied_head && options_.dtype != "int8") return prepared(Weight::dense(embedding));
    return stacked({{c.tied_head ? "model.embed_tokens" : "lm_head", c.vocab}}, c.width);
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  Weight prepared(Weight w) const {
    bytes_ += w.bytes();
    return backend_.prepare(std::move(w));
  }
  static void copy_rows(const Tensor& from, const Tensor& to) {
    in_parallel(from.dim(0), from.dim(1), [&](std::int64_t begin, std::int64_t end) {
      const Tensor rows = from.rows(begin, end - begin);
      std::memcpy(to.rows(begin, end - begin).raw(), rows.raw(), std::size_t(rows.bytes()));
    });
  }
  Tensor biases(const std::vector<std::pair<std::string, std::int64_t>>& parts, std::int64_t out) const {
    const Tensor all = Tensor::host({out}, DType::f32);
    std::int64_t at = 0;
    for (const auto& [name, rows] : parts) {
      const Tensor c = converted(tensors_.tensor(name + ".bias", {rows}), DType::f32);
      std::memcpy(all.rows(at, rows).raw(), c.raw(), std::size_t(c.bytes()));
      at += rows;
    }
    return all;  // Backend::prepare brings it to the device
  }
  DType stored_type(const Tensor& t) const {
    if (options_.dtype == "f32") return DType::f32;
    if (options_.dtype == "bf16") return DType::bf16;
    return t.dtype() == DType::bf16 ? DType::bf16 : DType::f32;
  }
  static float value(const Tensor& t, std::int64_t i) {
    if (t.dtype() == DType::f32) return t.data<float>()[i];
    if (t.dtype() == DType::bf16) return float(t.data<bf16>()[i]);
    if (t.dtype() == DType::f16) return float_from_f16(t.data<std::uint16_t>()[i]);
    throw Error(std::string("weights of type ") + name_of(t.dtype()) +
                " are not supported; convert the checkpoint to F32, F16 or BF16");
  }
  static Tensor converted(const Tensor& t, DType type) {
    if (t.dtype() == type) return t;
    Tensor c = Tensor::host(t.shape(), type);
    for (std::int64_t i = 0; i < t.elements(); ++i) {
      if (type == DType::f32)
        c.data<float>()[i] = value(t, i);
      else
        c.data<bf16>()[i] = bf16(value(t, i));
    }
    return c;
  }

  Backend& backend_;
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
  const Loader load(backend, tensors, options);
  const std::int64_t q = std::int64_t(c.heads) * c.head_size, kv = std::int64_t(c.kv_heads) * c.head_size;
  embedding_ = load.table("model.embed_tokens.weight", {c.vocab, c.width});
  head_ = load.head(c, embedding_);
  final_norm_ = load.vector("model.norm.weight", c.width);
  for (int l = 0; l < c.layers; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    const std::string attn = at + "self_attn.", mlp = at + "mlp.";
    const auto head_norm = [&](const char* name) {
      return c.head_norms ? load.vector(attn + name, c.head_size) : Tensor();
    };
    layers_.push_back(
        {load.vector(at + "input_layernorm.weight", c.width),
         load.vector(at + "post_attention_layernorm.weight", c.width), head_norm("q_norm.weight"),
         head_norm("k_norm.weight"),
         load.stacked({{attn + "q_proj", q}, {attn + "k_proj", kv}, {attn + "v_proj", kv}}, c.width, c.qkv_bias),
         load.stacked({{attn + "o_proj", c.width}}, q, c.out_bias),
         load.stacked({{mlp + "gate_proj", c.ffn}, {mlp + "up_proj", c.ffn}}, c.width, c.mlp_bias),
         load.stacked({{mlp + "down_proj", c.width}}, c.ffn, c.mlp_bias)});
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
