#include "drafters/heads/hydra_head.h"

#include <algorithm>

#include "drafters/heads/state_head.h"
#include "kernels/error.h"

namespace foretoken {

HydraHead::HydraHead(Backend& backend, const HydraFiles& files, const Ends& ends, const ModelInfo& target,
                     const std::string& dtype)
    : info_(target), ends_(ends) {
  const auto tensors = files.tensors();
  const WeightLoader load(backend, files.shapes(target), *tensors, dtype, "auto");
  for (int k = 0; k < files.heads; ++k) {
    const std::string at = std::to_string(k) + ".";
    heads_.emplace_back().first = load.products({at + "0.linear", at + "0.res_connection"});
    for (int j = 1; j < files.layers; ++j)
      heads_.back().further.push_back(load.one(at + std::to_string(j) + ".linear"));
    heads_.back().words = load.one(at + "lm_head");
  }
  info_.name = files.name, info_.skip = 1;
  if (files.prefix) {
    const ModelConfig& c = files.layer;
    info_.kv = KvShape(1, c.kv_heads, c.head_size, target.kv.layers.front().dtype);
    info_.kv.expect_heads(info_.name);
    layers_.emplace_back(load, c, "layers.0.");
    layer_bytes_ = layers_.front().attention_bytes() + layers_.front().feed_forward_bytes();
    norm_ = load.vector("norm.weight"), epsilon_ = float(c.norm_epsilon);
  }
  count_weights(info_, load, files.layer, layers_);
}

std::int64_t HydraHead::read_bytes_of(int k) const {
  const Head& head = heads_[std::size_t(k)];
  std::int64_t bytes = head.first.bytes() + head.words.bytes();
  for (const Weight& w : head.further) bytes += w.bytes();
  return bytes;
}

Output HydraHead::forward(Backend& b, const Rows& rows, std::span<const KvLayer> kv) {
  if (!rows.taps.empty()) expect_tokens_alone(rows, info_.name);
  if (!rows.inputs) throw Error("the head " + info_.name + " is given tokens without states (Rows::inputs)");
  layers_.at(0).forward(b, rows.inputs, rows.layout, kv[0]);
  if (!rows.wanted) return {};
  Tensor x = rows.inputs, embedded = b.embed(ends_.embedding, rows.tokens);
  if (!rows.all_wanted) x = b.gather(x, rows.wanted), embedded = b.gather(embedded, rows.wanted);
  Output out{rows.logits ? rows.logits : b.allocate({x.dim(0), info_.vocab}, DType::f32),
             b.rms_norm(x, norm_, epsilon_)};
  if (rows.features) b.copy(out.features, rows.features), out.features = rows.features;
  logits_of(b, heads_.front(), out.features, embedded, out.logits);
  return out;
}

void HydraHead::logits(Backend& b, int k, const Tensor& states, const Tensor& tokens, const Tensor& to) const {
  const Tensor embedded = b.embed(ends_.embedding, tokens);
  logits_of(b, heads_[std::size_t(k)], states, embedded.reshaped({states.dim(0), (k + 1) * states.dim(1)}), to);
}

void HydraHead::logits_of(Backend& b, const Head& head, const Tensor& states, const Tensor& embedded,
                          const Tensor& to) const {
  const std::int64_t width = states.dim(1);
  const Tensor z = b.allocate({states.dim(0), width + embedded.dim(1)}, DType::f32);
  b.copy(states, z.columns(0, width)), b.copy(embedded, z.columns(width, embedded.dim(1)));
  const Tensor both = head.first.of(b, z);
  Tensor y = both.columns(0, width);
  b.silu_add(y, both.columns(width, width));
  for (const Weight& w : head.further) {
    const Tensor next = b.linear(y, w);
    b.silu_add(next, y), y = next;
  }
  b.linear_to(to, y, head.words);
}

HydraRound::HydraRound(Host& host, std::shared_ptr<HydraHead> head)
    : StateRound(host, host.books(head->path_memory(host.backend()), {head->serial(), head->info().memory()}),
                 head->heads(), 1),
      backend_(host.backend()),
      head_(std::move(head)) {
  if (head_->prefix()) prefix_.emplace(host, head_, std::vector<Tap>{kNormed});
}

LevelModel::First HydraRound::begin(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
                                    const std::function<int(const DraftRequest&)>& fed) {
  if (!prefix_) return StateRound::begin(requests, trees, fed);
  level_ = 0, states_ = {}, state_of_.clear();
  return prefix_->begin(requests, trees, [](const DraftRequest&) { return 1; });  // other nodes have no rows in a cache
}

Output HydraRound::run(std::span<const Segment> segments) {
  const int level = level_++;
  if (prefix_ && level == 0) return run_prefix(segments);
  PathRows all = prefix_ ? PathRows{.form = {1, target_.width}, .path = level + 1} : rows(segments.front(), level + 1);
  for (const Segment& s : segments)
    for (int node = s.begin; node < s.tree->nodes; ++node) {
      prefix_ ? all.features.push_back(state_of_.at(s.tree)) : add_state(s, all);
      all.add_path(*s.tree, node);
    }
  const auto body = [&](const Tensor& states, const Tensor& tokens, const Tensor& to) {
    head_->logits(backend_, level, states, tokens, to);
  };
  return {forward_.run(all, target_.vocab, {std::int64_t(head_->serial()), level}, head_->read_bytes_of(level), body)};
}

Output HydraRound::run_prefix(std::span<const Segment> segments) {
  Output out = prefix_->run(segments);
  states_ = std::move(out.features);
  std::int64_t row = 0;
  for (const Segment& s : segments)
    if (s.tree) state_of_[s.tree] = std::uint64_t(reinterpret_cast<std::uintptr_t>(states_.row<float>(row++)));
  return {out.logits};
}

void HydraRound::forget(const Sequence& sequence) {
  if (prefix_) prefix_->forget(sequence);
}

}  // namespace foretoken
