#include "drafters/heads/eagle_drafter.h"

#include "drafters/growth.h"
#include "drafters/heads/eagle_head.h"

namespace foretoken {
namespace {

struct KeptHead {
  std::shared_ptr<Model> model;
  std::shared_ptr<Model> target;  // whose ends it uses
};

std::shared_ptr<Model> load_head(const nlohmann::json& o, const EagleFiles& files, Host& host) {
  const std::string dtype = o.at("dtype").get<std::string>();
  const auto target = host.target_model();
  const std::string key = "EAGLE head " + o.at("head").dump() + " " + dtype + " of " + std::to_string(target->serial());
  const auto kept = host.keep<KeptHead>(key, [&] {
    return std::make_shared<KeptHead>(
        KeptHead{std::make_shared<EagleHead>(host.backend(), files, host.ends(), host.target(), dtype), target});
  });
  return kept->model;
}

}  // namespace

Entry<Drafter> eagle_entry(const std::string& name, int generation, const std::string& summary,
                           const std::string& source) {
  std::vector<Option> options{
      {"head", "head", nullptr,
       "directory of the head, as published (config.json and model.safetensors), or {\"random\": SHAPE, \"seed\": 1, "
       "\"draft_vocab\": 0}"},
      {"dtype", "string", "auto", "type of its weights: auto (as stored), f32, bf16, or a format as of /target/dtype"}};
  for (Option& o : growth_options()) options.push_back(std::move(o));
  const nlohmann::json small{{"random", "small"}};
  return {summary,
          source,
          options,
          [name, generation](const nlohmann::json& o, Host& host) {
            const Growth growth = chosen_growth(o, name, host.target());
            const EagleFiles files = open_eagle(o.at("head"), generation, host.target());
            return growth.make(host, RoundModel(host, load_head(o, files, host), files.form.taps));
          },
          [name, generation](const nlohmann::json& o, const ModelInfo& target) {
            Needs needs = chosen_growth(o, name, target).needs;
            if (!target.kv.layers.empty()) needs.hidden = open_eagle(o.at("head"), generation, target).form.taps;
            return needs;
          },
          {{{"head", small}, {"temperature", 0.5}},
           {{"head", {{"random", "small"}, {"seed", 2}}},
            {"growth", "tree"},
            {"shape", {2, 1}},
            {"cut", true},
            {"draws", "without_replacement"},
            {"dtype", "f32"}},
           {{"head", small}, {"growth", "dynamic"}, {"width", 2}, {"expand", 2}}}};
}

}  // namespace foretoken
