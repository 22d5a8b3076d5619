#include "drafters/heads/eagle_drafter.h"

#include "drafters/growth.h"
#include "drafters/heads/eagle_head.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

struct KeptHead {
  std::shared_ptr<Model> model;
  std::shared_ptr<Model> target;  // whose ends it uses
};

EagleForm form_of(const std::string& head, int generation, const ModelInfo& target) {
  EagleForm form = eagle_form(head, int(target.kv.layers.size()));
  if (form.generation != generation)
    throw Error(head + " has " + (form.generation == 1 ? "an EAGLE-1 or 2" : "an EAGLE-3") +
                " head; use the drafter '" + (form.generation == 1 ? "eagle" : "eagle3") + "'");
  return form;
}

std::shared_ptr<Model> load_head(const nlohmann::json& o, int generation, Host& host) {
  const std::string head = o.at("head").get<std::string>(), dtype = o.at("dtype").get<std::string>();
  const auto target = host.target_model();
  const std::string key = "EAGLE head " + head + " " + dtype + " of " + std::to_string(target->serial());
  const auto kept = host.keep<KeptHead>(key, [&] {
    const EagleForm form = form_of(head, generation, host.target());
    return std::make_shared<KeptHead>(KeptHead{
        std::make_shared<EagleHead>(host.backend(), form, eagle_tensors(head), host.ends(), host.target(), head, dtype),
        target});
  });
  return kept->model;
}

}  // namespace

Entry<Drafter> eagle_entry(const std::string& name, int generation, const std::string& summary,
                           const std::string& source) {
  std::vector<Option> options{
      {"head", "path", nullptr, "directory of the head, as published: config.json and model.safetensors"},
      {"dtype", "string", "auto", "type of its weights: auto (as stored), f32, bf16, or a format as of /target/dtype"}};
  for (Option& o : growth_options()) options.push_back(std::move(o));
  return {summary, source, options,
          [name, generation](const nlohmann::json& o, Host& host) {
            const Growth growth = chosen_growth(o, name, host.target());
            const EagleForm form = form_of(o.at("head").get<std::string>(), generation, host.target());
            return growth.make(host, RoundModel(host, load_head(o, generation, host), form.taps));
          },
          [name, generation](const nlohmann::json& o, const ModelInfo& target) {
            Needs needs = chosen_growth(o, name, target).needs;
            if (!target.kv.layers.empty())
              needs.hidden = form_of(o.at("head").get<std::string>(), generation, target).taps;
            return needs;
          }};
}

}  // namespace foretoken
