#include "drafters/heads/state_head.h"

#include <algorithm>
#include <limits>

#include "kernels/error.h"

namespace foretoken {

StateHead::StateHead(const ModelConfig& c, const Ends& ends, const ModelInfo& target, std::string name)
    : info_(target), ends_(ends), epsilon_(float(c.norm_epsilon)) {
  info_.name = std::move(name), info_.positions = c.positions, info_.width = c.width, info_.skip = 1;
  const DType cache = target.kv.layers.front().dtype;
  info_.kv = c.latent ? kept_latents(c, cache) : KvShape(c.layers, c.kv_heads, c.head_size, cache, c.window);
  info_.kv.expect_heads(info_.name);
}

void count_weights(ModelInfo& info, const WeightLoader& load, const ModelConfig& layer,
                   std::span<const DecoderLayer> layers) {
  info.weight_bytes = load.bytes(), info.table_bytes = 0;
  info.expert_bytes = 0, info.used_experts = layer.mixture ? layer.mixture->used_share() : 1;
  for (const DecoderLayer& l : layers) info.expert_bytes += l.expert_bytes();
}

void StateHead::draw_only(Backend& backend, int rows) {
  if (rows == 0) return;
  if (!head_) head_ = ends_.head, shares_head_ = true;
  std::vector<float> bias(std::size_t(head_.out), -std::numeric_limits<float>::infinity());
  std::fill_n(bias.begin(), rows, 0.0f);
  head_.bias = backend.upload(Tensor::host_copy<float>(bias, DType::f32));
}

void StateHead::expect_width(int width, const ModelInfo& target, const std::string& who) {
  if (width != target.width)
    throw Error(who + " has a width of " + std::to_string(width) + ", but the target " + target.name + " one of " +
                std::to_string(target.width) + "; it belongs to another target");
}

void StateHead::expect_states(const Rows& rows) const {
  if (!rows.inputs) throw Error("the head " + info_.name + " is given tokens without features (Rows::inputs)");
}

std::int64_t StateHead::read_bytes(bool) const {
  return info_.weight_bytes - (own_embedding_ ? embedding_.bytes() : 0) +
         (head_ && !shares_head_ ? 0 : ends_.head.bytes());
}

Output StateHead::forward(Backend& b, const Rows& rows, std::span<const KvLayer> kv) {
  if (!rows.taps.empty()) expect_tokens_alone(rows, info_.name);
  Tensor x = stream(b, rows, kv);
  if (!rows.wanted) return {};
  if (!rows.all_wanted) x = b.gather(x, rows.wanted);
  const Tensor normed = norm_ ? b.rms_norm(x, norm_, epsilon_) : x;
  Output out{rows.logits ? rows.logits : b.allocate({x.dim(0), info_.vocab}, DType::f32), norm_output_ ? normed : x};
  if (rows.features) b.copy(out.features, rows.features), out.features = rows.features;
  const Weight& head = head_ ? head_ : ends_.head;
  if (ids_)
    b.spread(b.linear(normed, head), ids_, out.logits);
  else
    b.linear_to(out.logits, normed, head);
  return out;
}

}  // namespace foretoken
