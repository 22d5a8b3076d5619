#include "framework/components/round_model.h"

#include <algorithm>
#include <cmath>

#include "kernels/error.h"

namespace foretoken {

RoundModel::RoundModel(Host& host, std::shared_ptr<Model> model, std::vector<Tap> taps)
    : model_(host.cache(std::move(model))), distributions_(host.backend()), taps_(std::move(taps)) {}

RoundModel::RoundModel(Host& host, std::shared_ptr<CachedModel> part)
    : model_(std::move(part)), distributions_(host.backend()) {}

namespace {

// A model of another vocabulary has nothing to draft where biases forbid all tokens that it has in common with the
// target.
bool forbids_common(const Sequence& s, const VocabularyMap* map) {
  if (!map || int(s.sampling.logit_bias.size()) < map->common()) return false;
  return map->common() <= std::ranges::count_if(s.tally.token_counts(), [&](const TokenCount& c) {
           return std::isinf(c.bias) && map->own_ids()[std::size_t(c.token)] >= 0;
         });
}

}  // namespace

Budget RoundModel::budget(const DraftRequest& r) const {
  if (forbids_common(*r.sequence, model_->model()->vocabulary_map())) return Budget{}.or_root();
  Budget b = r.budget;
  b.depth = std::min(b.depth, model_->info().positions - model_->length(*r.sequence) + 1);
  return b.or_root();
}

RoundModel::First RoundModel::begin(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
                                    const std::function<int(const DraftRequest&)>& fed) {
  First first;
  std::vector<Segment> chains;
  hidden_.clear(), features_.clear(), outputs_.clear();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const DraftRequest& r = requests[i];
    if (r.rows == 0 || model_->length(*r.sequence) > model_->info().positions) continue;
    const int unseen = int(model_->unseen(*r.sequence).size());
    int rows = r.rows;
    if (!taps_.empty()) {  // while a prompt is read, the target has no states of its last tokens
      hidden_[r.sequence->id] = r.hidden;
      rows = std::min(rows, r.hidden.rows() - model_->cache().confirmed(r.sequence->id));
    }
    // What reads of the target drafts from the second round on: whether the first one has it depends on prefixes that
    // others read.
    const bool keeps = model_->cache().keeps(), reads_target = !taps_.empty() || !keeps;
    if (!keeps) rows = 1 + r.sequence->speculative();  // the target reads all tokens but the root
    const bool root = budget(r).drafts() && unseen > 0 && unseen <= rows &&
                      (!reads_target || r.sequence->generated() > r.sequence->speculative());
    const int chain = keeps || root ? std::min(unseen - 1, rows) : 0;
    if ((!root && chain <= 0) || !model_->reserve(*r.sequence, chain + (root ? fed(r) : 0))) continue;
    if (root) first.active.push_back(int(i));
    (root ? first.segments : chains).push_back({r.sequence, chain, root ? &trees[i] : nullptr, 0});
  }
  first.segments.insert(first.segments.end(), chains.begin(), chains.end());
  return first;
}

Output RoundModel::run(std::span<const Segment> segments) {
  if (taps_.empty() || segments.empty()) return model_->run(segments);
  const bool drafted = segments.front().begin > 0;  // all are of one level
  inputs_.clear();
  std::vector<std::size_t> begins;
  for (const Segment& s : segments) {
    begins.push_back(inputs_.size());
    drafted ? give_features(s) : give_states(s);
  }
  begins.push_back(inputs_.size());
  std::vector<Segment> fed(segments.begin(), segments.end());
  for (std::size_t i = 0; i < fed.size(); ++i) {
    fed[i].inputs = std::span(inputs_).subspan(begins[i], begins[i + 1] - begins[i]);
    if (drafted) fed[i].approximate = fed[i].begin;
  }
  const HiddenStates& states = hidden_.at(segments.front().sequence->id);
  const Output out = model_->run(fed, drafted ? RowInputs{1, model_->info().width} : states.form(taps_));
  note_features(segments, out);
  return out;
}

// The target's states of the rows' positions: row i has token i + 1 and the states of position i.
void RoundModel::give_states(const Segment& s) {
  const HiddenStates& states = hidden_.at(s.sequence->id);
  const int begin = model_->cache().confirmed(s.sequence->id);
  for (int at = begin; at < begin + s.chain + (s.tree ? 1 : 0); ++at) states.append(at, taps_, inputs_);
}

void RoundModel::give_features(const Segment& s) {
  const std::vector<std::uint64_t>& of = features_.at(s.tree);
  for (int node = s.begin; node < s.tree->nodes; ++node)
    inputs_.push_back(of.at(std::size_t(*s.tree->parents.row<std::int32_t>(node))));
}

void RoundModel::note_features(std::span<const Segment> segments, const Output& out) {
  if (!out.features) return;
  outputs_.push_back(out.features);
  std::int64_t row = 0;
  for (const Segment& s : segments)
    for (int node = s.begin; s.tree && node < s.tree->nodes; ++node, ++row)
      features_[s.tree].push_back(std::uint64_t(reinterpret_cast<std::uintptr_t>(out.features.row<float>(row))));
}

std::vector<Option> with_model(std::vector<Option> more) {
  std::vector<Option> all{
      {"model", "model", nullptr,
       "Hugging Face directory or GGUF file of the draft model, with any tokenizer, or "
       "{\"random\": SHAPE, \"seed\": 1}"},
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

Warp draft_warp(const Sequence& sequence, std::optional<float> temperature) {
  Warp warp = sequence.sampling.warp();
  if (temperature) warp.temperature = *temperature;
  return warp;
}

}  // namespace foretoken
