#include "drafters/heads/medusa_head.h"

#include <algorithm>

#include "drafters/heads/eagle_files.h"
#include "drafters/heads/head_tensors.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr int kMostHeads = kMaxPath;

std::string place(int head, int layer) { return std::to_string(head) + "." + std::to_string(layer); }

std::map<std::string, Shape> medusa_shapes(const MedusaFiles& f, const ModelInfo& target) {
  std::map<std::string, Shape> all;
  for (int k = 0; k < f.heads; ++k) {
    for (int j = 0; j < f.layers; ++j)
      all[place(k, j) + ".linear.weight"] = {target.width, target.width},
                        all[place(k, j) + ".linear.bias"] = {target.width};
    if (f.own_heads) all[place(k, f.layers) + ".weight"] = {target.vocab, target.width};
  }
  return all;
}

MedusaFiles random_medusa(const nlohmann::json& head, const ModelInfo& target) {
  const EagleFiles random = open_eagle(head, 1, target);
  const Fields fields(head, "the head " + head.dump());
  const int heads = fields.integer_or("heads", 0, kMostHeads, 0), layers = fields.integer_or("layers", 0, 16, 0);
  return {random.name, heads > 0 ? heads : 4, std::max(layers, 1), true, random.tensors};
}

}  // namespace

MedusaFiles open_medusa(const nlohmann::json& head, const ModelInfo& target) {
  if (head.is_object()) return random_medusa(head, target);
  const std::string directory = head.get<std::string>(), within = "medusa_head.";
  auto tensors = std::make_shared<HeadTensors>(
      directory, [&](const std::string& name) { return name.starts_with(within) ? name.substr(within.size()) : ""; });
  if (tensors->names().empty())
    tensors = std::make_shared<HeadTensors>(directory, [](const std::string& name) { return name; });
  MedusaFiles files{.name = directory, .tensors = [tensors] { return tensors; }};
  while (files.heads < kMostHeads && tensors->has(place(files.heads, 0) + ".linear.weight")) ++files.heads;
  if (files.heads == 0) tensors->refuse("no Medusa heads (0.0.linear.weight)");
  while (tensors->has(place(0, files.layers) + ".linear.weight")) ++files.layers;
  files.own_heads = tensors->has(place(0, files.layers) + ".weight");
  tensors->expect_known("Medusa heads", medusa_shapes(files, target));
  if (const Shape of = tensors->shape("0.0.linear.weight"); of.rank() == 2 && of[1] != target.width)
    throw Error("the heads " + directory + " read states of " + std::to_string(of[1]) +
                " numbers, but those of the target " + target.name + " have " + std::to_string(target.width) +
                "; they belong to another target");
  return files;
}

MedusaHeads::MedusaHeads(Backend& backend, const MedusaFiles& files, const Ends& ends, const ModelInfo& target,
                         const std::string& dtype)
    : ends_(ends) {
  const auto tensors = files.tensors();
  const WeightLoader load(backend, medusa_shapes(files, target), *tensors, dtype, "auto");
  std::vector<std::string> first;
  for (int k = 0; k < files.heads; ++k) {
    first.push_back(place(k, 0) + ".linear");
    further_.emplace_back();
    for (int j = 1; j < files.layers; ++j) further_.back().push_back(load.one(place(k, j) + ".linear"));
    if (files.own_heads) own_.push_back(load.one(place(k, files.layers)));
  }
  first_ = load.products(first);
  bytes_ = load.bytes();
}

std::int64_t MedusaHeads::read_bytes(int count) const {
  std::int64_t bytes = first_.bytes();
  for (int k = 0; k < count; ++k) {
    for (const Weight& w : further_[std::size_t(k)]) bytes += w.bytes();
    bytes += (own_.empty() ? ends_.head : own_[std::size_t(k)]).bytes();
  }
  return bytes;
}

void MedusaHeads::logits(Backend& b, const Tensor& x, int count, const Tensor& to) const {
  const Tensor all = first_.of(b, x);
  b.silu_add(all, x);
  const std::int64_t width = x.dim(1), vocab = to.dim(1) / count;
  for (int k = 0; k < count; ++k) {
    Tensor y = all.columns(k * width, width);
    for (const Weight& w : further_[std::size_t(k)]) {
      const Tensor z = b.linear(y, w);
      b.silu_add(z, y), y = z;
    }
    b.linear_to(to.columns(k * vocab, vocab), y, own_.empty() ? ends_.head : own_[std::size_t(k)]);
  }
}

MedusaRound::MedusaRound(Host& host, std::shared_ptr<MedusaHeads> heads)
    : StateRound(host, host.books(heads->memory(host.backend()), {heads->serial(), heads->bytes()}), heads->count(),
                 heads->count()),
      backend_(host.backend()),
      heads_(std::move(heads)),
      staging_(backend_) {}

LevelModel::First MedusaRound::begin(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
                                     const std::function<int(const DraftRequest&)>& fed) {
  levels_of_ = {};  // its memory serves this round too
  return StateRound::begin(requests, trees, fed);
}

Output MedusaRound::run_levels(std::span<const Segment> segments, int levels) {
  PathRows all = rows(segments.front(), 0);
  for (const Segment& s : segments) add_state(s, all);
  const auto body = [&](const Tensor& x, const Tensor&, const Tensor& to) { heads_->logits(backend_, x, levels, to); };
  const std::int64_t vocab = target_.vocab;
  const Tensor out =
      forward_.run(all, levels * vocab, {std::int64_t(heads_->serial()), levels}, heads_->read_bytes(levels), body);
  return {out.reshaped({out.dim(0) * levels, vocab})};
}

Output MedusaRound::run(std::span<const Segment> segments) {
  if (level_ == 0) {
    trees_.clear();
    for (const Segment& s : segments) trees_.emplace(s.tree, int(trees_.size()));
    levels_of_ = run_levels(segments, most_).logits;
  }
  std::vector<std::int32_t> of;
  for (const Segment& s : segments)
    of.insert(of.end(), std::size_t(s.tree->nodes - s.begin), trees_.at(s.tree) * most_ + level_);
  ++level_;
  staging_.begin(std::int64_t(of.size()) * 4 + Staging::kAlignment);
  const auto which = staging_.array({std::int64_t(of.size())}, DType::i32);
  std::ranges::copy(of, which.host.data<std::int32_t>());
  staging_.push();
  return {backend_.gather(levels_of_, which.device)};
}

}  // namespace foretoken
