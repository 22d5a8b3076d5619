// The target drafts for itself with its first layers alone, on its own cache (Elhoushi et al. 2024, LayerSkip, arXiv
// 2404.16710), and with an adapter behind them (Liu et al. 2024, Kangaroo, arXiv 2404.18911).
#include "drafters/drafters.h"
#include "drafters/heads/head_entry.h"
#include "drafters/heads/kangaroo_head.h"
#include "drafters/heads/kangaroo_round.h"
#include "drafters/target_part.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

// All layers from this one on.
LeftOut behind(int first, const ModelInfo& target) {
  const int count = int(target.kv.layers.size());
  if (first >= count)
    throw Error("option 'layers' of the drafter 'early_exit' is " + std::to_string(first) + ", but " + target.name +
                " has " + std::to_string(count) + " layers; choose fewer");
  LeftOut all;
  for (int l = first; l < count; ++l) all.attention.push_back(l), all.feed_forward.push_back(l);
  return all;
}

const HeadKind& adapter_kind() {
  static const HeadKind kKind{.name = "early_exit",
                              .summary = "",
                              .source = "",
                              .taps = {},
                              .load = [](const json& head, const std::string& dtype, Host& host) {
                                return std::make_shared<KangarooHead>(host.backend(),
                                                                      open_kangaroo(head, host.target()), host.ends(),
                                                                      host.target(), dtype);
                              }};
  return kKind;
}

bool has_adapter(const json& o) { return !o.at("head").is_null(); }

// How many of the target's layers are run.
int layers_in(const json& o, const ModelInfo& target) {
  std::optional<int> layers;
  if (!o.at("layers").is_null()) layers = o.at("layers").get<int>();
  if (!has_adapter(o)) {
    if (o.at("dtype") != "auto")
      throw Error("option 'dtype' of the drafter 'early_exit' is of its 'head', which it lacks; leave it out");
    if (!layers) throw Error("the drafter 'early_exit' needs the option 'layers' where it has no 'head'");
    return *layers;
  }
  const KangarooFiles files = open_kangaroo(read_head(adapter_kind(), o, target), target);
  if (!layers && !files.exit)
    throw Error("the adapter " + files.name +
                " does not say how many of the target's layers it follows; give the "
                "option 'layers' of the drafter 'early_exit'");
  if (layers && files.exit && *layers != *files.exit)
    throw Error("option 'layers' of the drafter 'early_exit' is " + std::to_string(*layers) + ", but the adapter " +
                files.name + " was trained to follow " + std::to_string(*files.exit) + " layers; leave it out");
  return layers ? *layers : *files.exit;
}

std::vector<Option> exit_options() {
  std::vector<Option> all{
      {"layers", "integer", nullptr,
       "how many of its layers are run; null: as many as 'head' was trained behind (\"exit_layer\" of its config.json)",
       true, 0, 1 << 12}};
  for (Option o : head_options(adapter_kind())) {
    if (o.name == "head")
      o.meaning = "adapter behind these layers, null: none; else the " + o.meaning, o.optional = true;
    all.push_back(std::move(o));
  }
  return with_growth_options(std::move(all));
}

std::unique_ptr<Drafter> exit_drafter(const json& o, Host& host) {
  const int layers = layers_in(o, host.target());
  LeftOut left_out = behind(layers, host.target());
  if (!has_adapter(o)) return part_drafter(o, "early_exit", left_out, host);
  left_out.head = true;
  const Growth growth = chosen_growth(o, "early_exit", host.target());
  return growth.grow(host, std::make_unique<KangarooRound>(host, kept_part(left_out, host),
                                                           load_head(adapter_kind(), o, host), layers));
}

Needs exit_needs(const json& o, const ModelInfo& target) {
  Needs needs = part_needs(o, "early_exit", target);
  needs.below_drafts = !has_adapter(o);  // which reads states of tokens that the target has read
  if (has_adapter(o) && target.kv.layers.empty()) return needs;  // not known yet
  const int layers = layers_in(o, target);
  if (has_adapter(o)) (void)behind(layers, target), needs.hidden = {layers};
  return needs;
}

}  // namespace

Entry<Drafter> early_exit() {
  const json small{{"random", "small"}};
  return {"the first layers of the target on its own cache, with its last norm and head or Kangaroo's adapter",
          "arXiv 2404.16710, 2404.18911",
          exit_options(),
          exit_drafter,
          exit_needs,
          {{{"layers", 0}, {"temperature", 0.5}},
           {{"layers", 0}, {"growth", "tree"}, {"shape", {2, 1}}, {"cut", true}, {"draws", "without_replacement"}},
           {{"layers", 0}, {"growth", "dynamic"}, {"width", 2}, {"expand", 2}},
           {{"layers", 0}, {"head", small}, {"temperature", 0.5}},
           {{"layers", 0}, {"head", small}, {"growth", "tree"}, {"shape", {2, 1}}, {"cut", true}, {"dtype", "f32"}},
           {{"layers", 0}, {"head", small}, {"growth", "dynamic"}, {"width", 2}, {"expand", 2}}}};
}

}  // namespace foretoken
