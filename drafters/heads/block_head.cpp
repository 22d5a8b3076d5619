#include "drafters/heads/block_head.h"

#include "kernels/error.h"

namespace foretoken {
namespace {

std::string block_layer(int l) { return "layers." + std::to_string(l) + "."; }

std::map<std::string, Shape> block_shapes(const BlockForm& f, int vocab) {
  const ModelConfig& c = f.layer;
  const int head = f.draft_vocab > 0 ? f.draft_vocab : vocab;
  std::map<std::string, Shape> all;
  for (int l = 0; l < c.layers; ++l)
    all.merge(DecoderLayer::tensors(c, block_layer(l), DecoderLayer::Projections::apart));
  all["fc.weight"] = {c.width, std::int64_t(f.taps.size()) * f.target_width};
  all["hidden_norm.weight"] = all["norm.weight"] = {c.width};
  if (f.own_embedding) all["embed_tokens.weight"] = {vocab, c.width};
  if (f.draft_vocab > 0) all["lm_head.weight"] = {f.draft_vocab, c.width};
  if (f.markov_rank == 0) return all;
  all["markov_head.markov_w1.weight"] = {vocab, f.markov_rank};
  all["markov_head.markov_w2.weight"] = {head, f.markov_rank};
  return all;
}

void expect_target_of_block(const BlockForm& f, const ModelInfo& target, const std::string& name) {
  const std::string remedy = "; it belongs to another target";
  if (f.target_width != target.width)
    throw Error("the head " + name + " reads states of " + std::to_string(f.target_width) +
                " numbers, but those of the target " + target.name + " have " + std::to_string(target.width) + remedy);
  if (f.layer.width != target.width && !(f.own_embedding && f.draft_vocab > 0))
    throw Error("the head " + name + " has no embedding and head of its own, and its width is " +
                std::to_string(f.layer.width) + ", but that of the target " + target.name + " is " +
                std::to_string(target.width) + remedy);
  if (f.own_embedding && f.layer.vocab != target.vocab)
    throw Error("the head " + name + " has a vocabulary of " + std::to_string(f.layer.vocab) +
                " tokens, but the target " + target.name + " has " + std::to_string(target.vocab) + remedy);
  if (f.mask >= target.vocab)
    throw Error("the mask token of the head " + name + " is " + std::to_string(f.mask) + ", but the target " +
                target.name + " has " + std::to_string(target.vocab) + " tokens" + remedy);
}

}  // namespace

BlockHead::BlockHead(Backend& backend, const BlockFiles& files, const Ends& ends, const ModelInfo& target,
                     const std::string& dtype)
    : StateHead(files.form.layer, ends, target, files.name), form_(files.form) {
  expect_target_of_block(form_, target, files.name);
  info_.skip = 0;
  const auto tensors = files.tensors();
  const WeightLoader load(backend, block_shapes(form_, target.vocab), *tensors, dtype, "auto");
  if (own_embedding_ = form_.own_embedding; own_embedding_) embedding_ = load.one("embed_tokens");
  fc_ = load.one("fc"), hidden_norm_ = load.vector("hidden_norm.weight");
  for (int l = 0; l < form_.layer.layers; ++l)
    layers_.emplace_back(load, form_.layer, block_layer(l), DecoderLayer::Projections::apart);
  norm_ = load.vector("norm.weight");
  if (form_.draft_vocab > 0) head_ = load.one("lm_head");
  if (!files.ids.empty()) ids_ = backend.upload(Tensor::host_copy<std::int32_t>(files.ids, DType::i32));
  if (form_.markov_rank > 0)
    of_before_ = load.one("markov_head.markov_w1"), to_logits_ = load.one("markov_head.markov_w2");
  draw_only(backend, files.drawn);
  files.expect_all_read();
  count_weights(info_, load, form_.layer, layers_);
}

// Rows with states read what makes keys and values of them; those of a block read all but fc and the correction, which
// is no part of a forward.
std::int64_t BlockHead::read_bytes(bool inputs) const {
  std::int64_t kept = fc_.bytes();
  for (const DecoderLayer& l : layers_) kept += l.kept_bytes();
  if (inputs) return kept;
  const std::int64_t correction = form_.markov_rank > 0 ? of_before_.bytes() + to_logits_.bytes() : 0;
  return StateHead::read_bytes(inputs) - fc_.bytes() - correction;
}

Tensor BlockHead::stream(Backend& b, const Rows& rows, std::span<const KvLayer> kv) const {
  if (rows.inputs) {
    if (rows.wanted)
      throw Error("logits of rows with states of the target are requested from the head " + info_.name +
                  ", which has none; request those of a block");
    const Tensor x = b.linear(rows.inputs, fc_);
    for (std::size_t l = 0; l < layers_.size(); ++l) layers_[l].keep(b, x, hidden_norm_, rows.layout, kv[l]);
    return {};
  }
  const Tensor x = embedded(b, rows);
  for (std::size_t l = 0; l < layers_.size(); ++l) layers_[l].forward(b, x, rows.layout, kv[l]);
  return x;
}

void BlockHead::correct(Backend& b, const Tensor& logits, const Tensor& before) const {
  const Tensor m = b.embed(of_before_, before);
  if (!ids_) return b.linear_add(logits, m, to_logits_);
  const Tensor whole = b.allocate(logits.shape(), DType::f32);
  b.spread(b.linear(m, to_logits_), ids_, whole);
  b.add(logits, whole);
}

}  // namespace foretoken
