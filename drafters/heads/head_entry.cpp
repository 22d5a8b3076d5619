#include "drafters/heads/head_entry.h"

#include "drafters/heads/inflated_head.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

std::unique_ptr<LevelModel> opened(const HeadKind& kind, const json& o, Host& host) {
  if (!kind.open)
    return std::make_unique<RoundModel>(host, load_head(kind, o, host),
                                        kind.taps(read_head(kind, o, host.target()), host.target()));
  return kind.open(read_head(kind, o, host.target()), o.at("dtype").get<std::string>(), host);
}

std::vector<std::string> keys_of(const HeadKind& kind, const json& head) {
  std::vector<std::string> keys{"random", "seed"};
  if (head.contains("random")) {
    for (const auto& [key, value] : kind.random_keys) keys.push_back(key);
    return keys;
  }
  keys = {"directory", "inflate"};
  if (kind.inflated_keys) keys.insert(keys.end(), kind.inflated_keys->begin(), kind.inflated_keys->end());
  return keys;
}

}  // namespace

json read_head(const HeadKind& kind, const json& o, const ModelInfo& target) {
  json head = o.at("head");
  bool inflates = target.small.has_value();
  if (head.is_object()) {
    const bool random = head.contains("random");
    for (const auto& [key, value] : head.items())
      expect_option(random ? "a random head" : "a head", key, keys_of(kind, head));
    for (const char* key : {"directory", "inflate"})
      if (head.contains(key) && (!head[key].is_string() || head[key] == ""))
        throw Error("'" + std::string(key) + "' of the head " + head.dump() + " must be a non-empty string");
    if (!random && !head.contains("directory"))
      throw Error("the head " + head.dump() + " has neither \"directory\" nor \"random\"; give one of them");
    inflates = !random && (inflates || head.contains("inflate"));
    if (!random && head.size() == 1) head = head.at("directory");
  }
  if (inflates && !kind.inflated_keys)
    throw Error("heads of the drafter '" + kind.name +
                "' cannot be inflated; use a target as it is, or a head of eagle, eagle3, mtp, dflash or dspark");
  return head;
}

std::shared_ptr<Model> load_head(const HeadKind& kind, const json& o, Host& host) {
  const json head = read_head(kind, o, host.target());
  const std::string dtype = o.at("dtype").get<std::string>();
  return kept_with_target<Model>(kind.name, head.dump() + " " + dtype, host,
                                 [&] { return kind.load(head, dtype, host); });
}

std::vector<Option> head_options(const HeadKind& kind) {
  std::string random = "{\"random\": SHAPE, \"seed\": 1";
  for (const auto& [key, value] : kind.random_keys) random += ", \"" + key + "\": " + std::to_string(value);
  std::string inflated;
  if (kind.inflated_keys) {
    inflated = "; beside an inflated target {\"directory\": PATH, \"inflate\": SHAPE";
    for (const std::string& key : *kind.inflated_keys) inflated += ", \"" + key + "\": 0";
    inflated += "}, where 0 means as many as it has";
    if (kind.inflated_keys->empty()) inflated = inflated.substr(0, inflated.find("}") + 1);
  }
  return {
      {"head", "head", nullptr,
       "directory of the head, as published (config.json and model.safetensors)" + inflated + ", or " + random + "}"},
      {"dtype", "string", "auto", "type of its weights: auto (as stored), f32, bf16, or a format as of /target/dtype"}};
}

Entry<Drafter> head_entry(HeadKind kind) {
  std::vector<Option> options = with_growth_options(head_options(kind));
  const json small{{"random", "small"}}, other{{"random", "small"}, {"seed", 2}};
  std::vector<json> examples{{{"head", small}, {"temperature", 0.5}},
                             {{"head", other},
                              {"growth", "tree"},
                              {"shape", {2, 1}},
                              {"cut", true},
                              {"draws", "without_replacement"},
                              {"dtype", "f32"}},
                             {{"head", small}, {"growth", "dynamic"}, {"width", 2}, {"expand", 2}}};
  examples.insert(examples.end(), kind.examples.begin(), kind.examples.end());
  return {kind.summary,
          kind.source,
          options,
          [kind](const json& o, Host& host) {
            const Growth growth = chosen_growth(o, kind.name, host.target(), kind.marginals);
            return growth.grow(host, opened(kind, o, host));
          },
          [kind](const json& o, const ModelInfo& target) {
            Needs needs = chosen_growth(o, kind.name, target, kind.marginals).needs;
            needs.below_drafts = false;  // the target has no states of tokens that it has not read
            if (!target.kv.layers.empty()) needs.hidden = kind.taps(read_head(kind, o, target), target);
            return needs;
          },
          examples};
}

}  // namespace foretoken
