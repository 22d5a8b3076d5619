#include "drafters/heads/head_entry.h"

#include "framework/text/known_names.h"

namespace foretoken {
namespace {

void expect_keys(const HeadKind& kind, const nlohmann::json& head) {
  std::vector<std::string> known{"random", "seed"};
  for (const auto& [key, value] : kind.random_keys) known.push_back(key);
  for (const auto& [key, value] : head.items())
    if (head.is_object()) expect_option("a random head", key, known);
}

std::unique_ptr<LevelModel> opened(const HeadKind& kind, const nlohmann::json& o, Host& host) {
  if (!kind.open)
    return std::make_unique<RoundModel>(host, load_head(kind, o, host), kind.taps(o.at("head"), host.target()));
  expect_keys(kind, o.at("head"));
  return kind.open(o.at("head"), o.at("dtype").get<std::string>(), host);
}

}  // namespace

std::shared_ptr<Model> load_head(const HeadKind& kind, const nlohmann::json& o, Host& host) {
  expect_keys(kind, o.at("head"));
  const nlohmann::json& head = o.at("head");
  const std::string dtype = o.at("dtype").get<std::string>();
  return kept_with_target<Model>(kind.name, head.dump() + " " + dtype, host,
                                 [&] { return kind.load(head, dtype, host); });
}

std::vector<Option> head_options(const HeadKind& kind) {
  std::string random = "{\"random\": SHAPE, \"seed\": 1";
  for (const auto& [key, value] : kind.random_keys) random += ", \"" + key + "\": " + std::to_string(value);
  return {
      {"head", "head", nullptr,
       "directory of the head, as published (config.json and model.safetensors), or " + random + "}"},
      {"dtype", "string", "auto", "type of its weights: auto (as stored), f32, bf16, or a format as of /target/dtype"}};
}

Entry<Drafter> head_entry(HeadKind kind) {
  std::vector<Option> options = with_growth_options(head_options(kind));
  const nlohmann::json small{{"random", "small"}}, other{{"random", "small"}, {"seed", 2}};
  std::vector<nlohmann::json> examples{{{"head", small}, {"temperature", 0.5}},
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
          [kind](const nlohmann::json& o, Host& host) {
            const Growth growth = chosen_growth(o, kind.name, host.target(), kind.marginals);
            return growth.grow(host, opened(kind, o, host));
          },
          [kind](const nlohmann::json& o, const ModelInfo& target) {
            Needs needs = chosen_growth(o, kind.name, target, kind.marginals).needs;
            if (!target.kv.layers.empty()) needs.hidden = kind.taps(o.at("head"), target);
            return needs;
          },
          examples};
}

}  // namespace foretoken
