#include "framework/components/round_model.h"

#include <algorithm>

#include "kernels/error.h"

namespace foretoken {

RoundModel::RoundModel(Host& host, std::shared_ptr<Model> model)
    : model_(host.cache(std::move(model))), distributions_(host.backend()) {}

Budget RoundModel::budget(const DraftRequest& r) const {
  Budget b = r.budget;
  b.depth = std::min(b.depth, model_->info().positions - r.sequence->length() + 1);
  return b.or_root();
}

RoundModel::First RoundModel::begin(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
                                    const std::function<int(const DraftRequest&)>& fed) {
  First first;
  std::vector<Segment> chains;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const DraftRequest& r = requests[i];
    if (r.rows == 0 || r.sequence->length() > model_->info().positions) continue;
    const int unseen = int(model_->unseen(*r.sequence).size());
    const bool root = budget(r).drafts() && unseen <= r.rows;
    const int chain = std::min(unseen - 1, r.rows);
    if ((!root && chain == 0) || !model_->reserve(*r.sequence, chain + (root ? fed(r) : 0))) continue;
    if (root) first.active.push_back(int(i));
    (root ? first.segments : chains).push_back({r.sequence, chain, root ? &trees[i] : nullptr, 0});
  }
  first.segments.insert(first.segments.end(), chains.begin(), chains.end());
  return first;
}

std::vector<Option> with_model(std::vector<Option> more) {
  std::vector<Option> all{
      {"model", "model", nullptr,
       "Hugging Face directory or GGUF file of the draft model, or {\"random\": SHAPE, \"seed\": 1}"},
      {"inflate", "shape", nullptr, "shape that it is embedded in, computing the same at its cost; null: as it is",
       true, -1e300, 1e300, "model"},
      {"dtype", "dtype", "auto", "type of its weights: auto (as stored), f32, bf16, or a format as of /target/dtype",
       false, -1e300, 1e300, "model"},
      {"kv_dtype", "kv_dtype", "target",
       "type of its cached keys and values, as of /target/kv_dtype; target: as the target's", false, -1e300, 1e300,
       "model"}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Option draft_temperature() {
  return {"temperature", "number", nullptr, "of the draft's distributions; null: the sequence's own", true, 0, 100};
}

std::optional<float> read_draft_temperature(const nlohmann::json& options, const std::string& drafter) {
  const nlohmann::json& t = options.at("temperature");
  if (t.is_null()) return std::nullopt;
  if (!is_temperature(t.get<double>()))
    throw Error("'temperature' of the drafter '" + drafter + "' is too small to divide by; use 0 for a greedy draft");
  return t.get<float>();
}

}  // namespace foretoken
