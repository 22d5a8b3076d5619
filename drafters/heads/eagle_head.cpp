#include "drafters/heads/eagle_head.h"

#include "kernels/error.h"

namespace foretoken {
namespace {

const std::string kLayer = "layers.0.", kAttention = kLayer + "self_attn.";

std::string layer_name(int l) { return "layers." + std::to_string(l) + "."; }

std::map<std::string, Shape> shapes_of(const EagleForm& f, int vocab) {
  const ModelConfig& c = f.layer;
  const std::int64_t q = std::int64_t(c.heads) * c.head_size, kv = std::int64_t(c.kv_heads) * c.head_size;
  std::map<std::string, Shape> all = DecoderLayer::tensors(c, kLayer, DecoderLayer::Projections::none);
  for (int l = 1; l < c.layers; ++l) all.merge(DecoderLayer::tensors(c, layer_name(l)));
  if (f.own_embedding) all["embed_tokens.weight"] = {vocab, c.width};
  if (f.draft_vocab > 0) all["lm_head.weight"] = {f.draft_vocab, c.width};
  if (f.fc_bias) all["fc.part0.bias"] = {c.width};
  const auto projections = [&](const std::string& part) {
    for (const auto& [name, out] : {std::pair("q_proj", q), std::pair("k_proj", kv), std::pair("v_proj", kv)}) {
      all[kAttention + name + part + ".weight"] = {out, c.width};
      if (c.qkv_bias && part != ".part1") all[kAttention + name + part + ".bias"] = {out};
    }
  };
  if (f.generation == 1) {
    for (const char* part : {"fc.part0.weight", "fc.part1.weight"}) all[part] = {c.width, c.width};
    projections("");
    return all;
  }
  for (std::size_t i = 0; f.combines() && i < f.taps.size(); ++i)
    all["fc.part" + std::to_string(i) + ".weight"] = {c.width, f.target_width};
  for (const char* norm : {"layers.0.input_layernorm.weight", "layers.0.hidden_norm.weight", "norm.weight"})
    all[norm] = {c.width};
  for (std::size_t i = 0; f.state_norm == EagleForm::Norm::each && i < f.taps.size(); ++i)
    all["fc_norm." + std::to_string(i) + ".weight"] = {f.target_width};
  if (f.state_norm == EagleForm::Norm::all) all["input_norm.weight"] = {std::int64_t(f.taps.size()) * f.target_width};
  projections(".part0"), projections(".part1");
  return all;
}

std::vector<std::string> projections_of(const std::string& part) {
  return {kAttention + "q_proj" + part, kAttention + "k_proj" + part, kAttention + "v_proj" + part};
}

void expect_target(const EagleForm& f, const ModelInfo& target, const std::string& name) {
  if (f.target_width != target.width)
    throw Error("the head " + name + " reads states of " + std::to_string(f.target_width) +
                " numbers, but those of the target " + target.name + " have " + std::to_string(target.width) +
                "; it belongs to another target");
  if (f.own_embedding && f.layer.vocab != target.vocab)
    throw Error("the head " + name + " has an embedding of " + std::to_string(f.layer.vocab) +
                " tokens, but the target " + target.name + " has " + std::to_string(target.vocab) +
                "; it belongs to another target");
  if (!f.own_embedding && f.layer.width != target.width)
    throw Error("the head " + name + " has no embedding of its own, and its width is " + std::to_string(f.layer.width) +
                ", but that of the target " + target.name + " is " + std::to_string(target.width) +
                "; it belongs to another target");
}

// Adds x W^T of several matrices.
void add_products(Backend& b, const Tensor& to, const Products& all, const Tensor& x) {
  std::int64_t at = 0;
  for (const Weight& w : all.parts) {
    b.linear_add(all.parts.size() == 1 ? to : to.columns(at, w.out), x, w);
    at += w.out;
  }
}

}  // namespace

EagleHead::EagleHead(Backend& backend, const EagleFiles& files, const Ends& ends, const ModelInfo& target,
                     const std::string& dtype)
    : StateHead(files.form.layer, ends, target, files.name), form_(files.form) {
  expect_target(form_, target, files.name);
  const auto tensors = files.tensors();
  const WeightLoader load(backend, shapes_of(form_, target.vocab), *tensors, dtype, "auto");
  if (own_embedding_ = form_.own_embedding; own_embedding_) embedding_ = load.one("embed_tokens");
  load_states(load);
  layers_.emplace_back(load, form_.layer, kLayer, DecoderLayer::Projections::none);
  for (int l = 1; l < form_.layer.layers; ++l) layers_.emplace_back(load, form_.layer, layer_name(l));
  if (form_.draft_vocab > 0) head_ = load.one("lm_head");
  if (!files.ids.empty()) ids_ = backend.upload(Tensor::host_copy<std::int32_t>(files.ids, DType::i32));
  norm_output_ = form_.norm_output;
  draw_only(backend, files.drawn);
  files.expect_all_read();
  count_weights(info_, load, form_.layer, layers_);
}

void EagleHead::load_states(const WeightLoader& load) {
  if (form_.generation == 1) {
    fc_ = {load.one("fc.part0"), load.one("fc.part1")};
    of_state_ = load.products(projections_of(""));
    return;
  }
  for (std::size_t i = 0; form_.combines() && i < form_.taps.size(); ++i)
    fc_.push_back(load.one("fc.part" + std::to_string(i)));
  for (std::size_t i = 0; form_.state_norm == EagleForm::Norm::each && i < form_.taps.size(); ++i)
    fc_norms_.push_back(load.vector("fc_norm." + std::to_string(i) + ".weight"));
  if (form_.state_norm == EagleForm::Norm::all) fc_norms_ = {load.vector("input_norm.weight")};
  embedding_norm_ = load.vector(kLayer + "input_layernorm.weight");
  state_norm_ = load.vector(kLayer + "hidden_norm.weight");
  norm_ = load.vector("norm.weight");
  of_embedding_ = load.products(projections_of(".part0")), of_state_ = load.products(projections_of(".part1"));
}

// The states of the target, [rows, states * target_width], as one of the head's own features: [rows, width].
Tensor EagleHead::of_states(Backend& b, const Tensor& inputs) const {
  const Tensor all = form_.state_norm == EagleForm::Norm::all ? b.rms_norm(inputs, fc_norms_[0], epsilon_) : inputs;
  Tensor g;
  for (std::size_t i = 0; i < fc_.size(); ++i) {
    Tensor state = all.columns(std::int64_t(i) * form_.target_width, form_.target_width);
    if (form_.state_norm == EagleForm::Norm::each) state = b.rms_norm(state, fc_norms_[i], epsilon_);
    if (i == 0)
      g = b.linear(state, fc_[i]);
    else
      b.linear_add(g, state, fc_[i]);
  }
  return g;
}

// What the first layer adds its attention to, and its q, k and v.
Tensor EagleHead::first_input(Backend& b, const Tensor& embedded, const Tensor& inputs, Tensor& qkv) const {
  if (form_.generation == 1) {
    const Tensor x = b.linear(embedded, fc_[0]);
    b.linear_add(x, inputs, fc_[1]);
    qkv = of_state_.of(b, x);
    return x;
  }
  const bool own = !form_.combines() || inputs.dim(1) == form_.layer.width;
  const Tensor g = own ? inputs : of_states(b, inputs);
  const Tensor normed = b.rms_norm(g, state_norm_, epsilon_);
  qkv = of_embedding_.of(b, b.rms_norm(embedded, embedding_norm_, epsilon_));
  add_products(b, qkv, of_state_, normed);
  return form_.norm_before_residual ? normed : g;
}

Tensor EagleHead::stream(Backend& b, const Rows& rows, std::span<const KvLayer> kv) const {
  expect_states(rows);
  Tensor qkv;
  const Tensor x = first_input(b, embedded(b, rows), rows.inputs, qkv);
  layers_[0].attend(b, x, qkv, rows.layout, kv[0]);
  layers_[0].feed_forward(b, x);
  for (std::size_t l = 1; l < layers_.size(); ++l) layers_[l].forward(b, x, rows.layout, kv[l]);
  return x;
}

}  // namespace foretoken
