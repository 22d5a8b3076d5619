#include "framework/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "framework/model/convert.h"
#include "framework/model/latent_attention.h"
#include "framework/model/model_tensors.h"
#include "framework/model/unit_offset.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

DType cache_type(const std::string& name, const Backend& backend) {
  if (name == "auto") return backend.name() == "reference" ? DType::f32 : DType::bf16;
  if (name == "f32") return DType::f32;
  if (name == "bf16") return DType::bf16;
  if (name == "int8") return DType::i8;
  if (name == "fp8") return DType::e4m3;
  unknown_name("kv_dtype", name, cache_types());
}

// What a forward on the device would refuse, said before weights are read.
void expect_rules(const ModelConfig& c, const Backend& backend, const std::string& name) {
  const bool partial = c.rotary > 0 && c.rotary != c.head_size;
  const std::string missing = backend.lacks({.head_size = c.latent ? c.latent->kept() : c.head_size,
                                             .softcap = c.attention_softcap > 0,
                                             .sinks = c.sinks,
                                             .partial_rotation = partial && !c.latent,
                                             .rotation_factor = partial && c.rope_scaling.attention_factor != 1,
                                             .latent = c.latent.has_value()});
  if (!missing.empty())
    throw Error(backend.name() + ": the model " + name + " has " + missing +
                ", which this device does not compute; use another device, or another model");
}

// As Transformers has it: in the type of the table.
float embedding_scale(const ModelConfig& c, const Weight& table) {
  if (!c.scaled_embedding) return 1;
  const float scale = std::sqrt(float(c.width));
  return table.values && table.values.dtype() == DType::bf16 ? float(bf16(scale)) : scale;
}

// The gains of the last norm, but 0 for the constant features of an inflated model.
Tensor without_constants(Backend& backend, const TensorSource& tensors, const ModelConfig& c) {
  const Tensor stored = converted(tensors.tensor("model.norm.weight", {c.width}), DType::f32);
  const Tensor gains = Tensor::host_copy<float>(stored.values<float>(), DType::f32);
  std::ranges::fill(gains.values<float>().last(std::size_t(c.small->constants)), 0.0f);
  return backend.upload(gains);
}

}  // namespace

const std::vector<std::string>& cache_types() {
  static const std::vector<std::string> all{"auto", "f32", "bf16", "int8", "fp8"};
  return all;
}

ModelInfo model_info(const ModelConfig& c, const Backend& backend, std::string name, std::uint64_t vocabulary,
                     const std::string& kv_dtype) {
  expect_rules(c, backend, name);
  KvShape kv{c.layers, c.kv_heads, c.head_size, cache_type(kv_dtype, backend)};
  for (int l = 0; l < c.layers; ++l) kv.layers[std::size_t(l)].window = c.of_layer(l).window;
  if (c.latent) kv = kept_latents(c, kv.layers.front().dtype);
  kv.expect_heads(name);
  ModelInfo info{std::move(name), c.vocab, c.positions, c.width, 0, kv, vocabulary, {c.eos.begin(), c.eos.end()}, 0};
  info.mask = c.mask.value_or(-1), info.small = c.small;
  if (c.mixture) info.used_experts = c.mixture->used_share();
  if (c.vision) info.notice = info.name + " is its language model alone: its vision tower is not computed";
  return info;
}

Transformer::Transformer(Backend& backend, const ModelConfig& c, const TensorSource& stored, std::string name,
                         std::uint64_t vocabulary, const TransformerOptions& options)
    : config_(c), info_(model_info(c, backend, std::move(name), vocabulary, options.kv_dtype)) {
  expect_no_other_tensors(c, stored);
  const UnitOffset offset(stored);
  const TensorSource& tensors = c.gains_less_one ? offset : stored;
  const WeightLoader load(backend, tensors_of(c), tensors, options.dtype, options.head_dtype);
  std::tie(ends_.embedding, ends_.head) = load.ends("model.embed_tokens", c.tied_head ? "" : "lm_head");
  ends_.norm = state_norm_ = load.vector("model.norm.weight"), ends_.epsilon = float(c.norm_epsilon);
  ends_.embedding_scale = embedding_scale(c, ends_.embedding), ends_.softcap = float(c.logit_softcap);
  if (c.small && c.small->constants > 0) state_norm_ = without_constants(backend, tensors, c);
  for (int l = 0; l < c.layers; ++l) layers_.emplace_back(load, c.of_layer(l), layer_prefix(l));
  all_.resize(layers_.size());
  for (const DecoderLayer& l : layers_) info_.expert_bytes += l.expert_bytes();
  info_.weight_bytes = load.bytes(), info_.table_bytes = table_bytes(ends_.embedding, ends_.head);
}

const Ends* Transformer::ends(Backend&) {
  if (ends_.embedding_scale != 1 || ends_.softcap > 0)
    throw Error("the target " + info_.name +
                " multiplies its embeddings or caps its logits, which draft heads do not; choose a drafter that is no "
                "head");
  return &ends_;
}

// A forward without some sublayers, on the weights of the whole.
class Transformer::Part : public Model {
 public:
  Part(std::shared_ptr<const Transformer> whole, const LeftOut& left_out)
      : whole_(std::move(whole)), info_(whole_->info_), run_(whole_->all_), head_(!left_out.head) {
    const std::vector<DecoderLayer>& layers = whole_->layers_;
    for (const int l : left_out.attention)
      run_[std::size_t(l)].attention = false, info_.weight_bytes -= layers[std::size_t(l)].attention_bytes();
    for (const int l : left_out.feed_forward) {
      run_[std::size_t(l)].feed_forward = false, info_.weight_bytes -= layers[std::size_t(l)].feed_forward_bytes();
      info_.expert_bytes -= layers[std::size_t(l)].expert_bytes();
    }
    if (!head_) info_.weight_bytes -= whole_->ends_.head.bytes();
    info_.name = "part of " + info_.name, info_.table_bytes = 0;
  }
  const ModelInfo& info() const override { return info_; }
  Output forward(Backend& b, const Rows& rows, std::span<const KvLayer> kv) override {
    return whole_->through(b, rows, kv, run_, head_);
  }
  bool replays() const override { return true; }
  const Rank* rank() const override { return whole_->rank(); }
  bool logits() const override { return head_; }
  bool features() const override { return !head_; }
  bool reads_states() const override { return false; }

 private:
  std::shared_ptr<const Transformer> whole_;
  ModelInfo info_;
  std::vector<Sublayers> run_;
  bool head_;
};

std::shared_ptr<Model> Transformer::part(const std::shared_ptr<Model>& self, const LeftOut& left_out) {
  return std::make_shared<Part>(std::static_pointer_cast<Transformer>(self), left_out);
}

Output Transformer::forward(Backend& b, const Rows& rows, std::span<const KvLayer> kv) {
  return through(b, rows, kv, all_, true);
}

Output Transformer::through(Backend& b, const Rows& rows, std::span<const KvLayer> kv, std::span<const Sublayers> run,
                            bool head) const {
  expect_no_inputs(rows, info_.name);
  const float epsilon = ends_.epsilon;
  Tensor x = b.embed(ends_.embedding, rows.tokens);  // [rows, width]
  if (ends_.embedding_scale != 1) b.scale(x, ends_.embedding_scale);
  const auto keep = [&](Tap tap, const Tensor& state) {
    for (std::size_t i = 0; i < rows.taps.size(); ++i)
      if (rows.taps[i] == tap) store_tap(b, state, kv[layers_.size() + i], rows.layout);
  };
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    keep(Tap(l), x);
    if (run[l].attention) layers_[l].attend(b, x, rows.layout, kv[l], rows.mass);
    if (run[l].feed_forward) layers_[l].feed_forward(b, x);
  }
  if (rows.mass && config_.rank) b.all_reduce(rows.mass, *config_.rank);  // each rank has some of the heads
  keep(Tap(layers_.size()), x);
  if (std::ranges::find(rows.taps, kNormed) != rows.taps.end()) keep(kNormed, b.rms_norm(x, state_norm_, epsilon));
  if (!rows.wanted) return {};
  if (!rows.all_wanted) x = b.gather(x, rows.wanted);
  if (!head) {
    if (!rows.features) return {{}, x};
    b.copy(x, rows.features);
    return {{}, rows.features};
  }
  Tensor logits = rows.logits;  // [wanted, vocab]
  if (logits)
    b.norm_linear_to(logits, x, ends_.norm, epsilon, ends_.head);
  else
    logits = b.linear(b.rms_norm(x, ends_.norm, epsilon), ends_.head);
  if (ends_.softcap > 0) b.softcap(logits, ends_.softcap);
  return {logits};
}

}  // namespace foretoken
