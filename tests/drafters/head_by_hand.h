// A draft head of tests/data/heads beside the tiny target llama2, fed by hand.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drafters/heads/eagle_head.h"
#include "drafters/heads/hydra_head.h"
#include "drafters/heads/kangaroo_head.h"
#include "drafters/heads/kangaroo_round.h"
#include "drafters/heads/medusa_head.h"
#include "drafters/heads/mtp_head.h"
#include "experiments/conformance/scenario.h"
#include "framework/components/round_model.h"
#include "tests/drafters/golden_logits.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {

using MakeTarget = std::function<std::shared_ptr<Model>(Backend&)>;
inline std::shared_ptr<Model> tiny_target(Backend& backend) { return tiny_model(backend, "llama2"); }
inline nlohmann::json directory_of_golden(const std::string& name) { return (kHeads / name).string(); }

struct HeadByHand {
  explicit HeadByHand(std::unique_ptr<Backend> made, const MakeTarget& target = tiny_target)
      : backend(std::move(made)), models{target(*backend), {}} {}

  void open(const std::string& name) {
    const nlohmann::json path = as_named(name);
    const ModelInfo& target = models.target->info();
    const Ends& ends = host.ends();
    if (name.starts_with("kangaroo")) return open_kangaroo_head(path);
    taps = {kNormed};
    if (name.starts_with("medusa")) {
      const MedusaFiles files = open_medusa(path, target);
      model = std::make_unique<MedusaRound>(host, std::make_shared<MedusaHeads>(*backend, files, ends, target, "f32"));
    } else if (name.starts_with("hydra")) {
      const HydraFiles files = open_hydra(path, target, ends.epsilon);
      model = std::make_unique<HydraRound>(host, std::make_shared<HydraHead>(*backend, files, ends, target, "f32"));
    } else if (name.starts_with("mtp")) {
      cached(std::make_shared<MtpHead>(*backend, open_mtp(path, target, true), ends, target, "f32"));
    } else {
      const EagleFiles files = open_eagle(path, name == "eagle1" ? 1 : 3, target, true);
      taps = files.form.taps;
      cached(std::make_shared<EagleHead>(*backend, files, ends, target, "f32"));
    }
    states.emplace(*backend, models, Needs{.hidden = taps});
  }
  // On a view of the target's cache.
  void open_kangaroo_head(const nlohmann::json& path) {
    const KangarooFiles files = open_kangaroo(path, models.target->info());
    taps = {files.exit.value()};
    states.emplace(*backend, models, Needs{.hidden = taps, .views_target = true});
    viewing.emplace(*backend, pool, models.target->info(), Host::Load(), false,
                    Host::Offers{models.target, states->cache(), &registries});
    LeftOut left_out{{}, {}, true};
    for (int l = taps[0]; l < int(models.target->info().kv.layers.size()); ++l)
      left_out.attention.push_back(l), left_out.feed_forward.push_back(l);
    model = std::make_unique<KangarooRound>(
        *viewing, part_of(models.target, left_out),
        std::make_shared<KangarooHead>(*backend, files, host.ends(), models.target->info(), "f32"), taps[0]);
  }
  void cached(std::shared_ptr<Model> head) { model = std::make_unique<RoundModel>(host, std::move(head), taps); }
  DraftRequest request(const Tokens& tokens, int levels) {
    sequence.id = 1, sequence.tokens = tokens, sequence.prompt_length = 1;
    return {&sequence, {levels + 1, levels}, 1 << 20, {}, false, states->of(sequence)};
  }
  // The logits after the last token of the sequence, and after each of the drafts.
  std::vector<std::vector<float>> round(const Tokens& tokens, const Tokens& drafts) {
    const DraftRequest r = request(tokens, int(drafts.size()) + 1);
    std::vector<DraftTree> trees = rooted(*backend, {&r, 1});
    std::vector<Segment> segments =
        model->begin({&r, 1}, trees, [&](const auto&) { return int(drafts.size()) + 1; }).segments;
    std::vector<std::vector<float>> found;
    for (std::size_t depth = 0;; ++depth) {
      const Output out = model->run(segments);
      EXPECT_EQ(out.logits.dim(0), 1);
      const float* const row = out.logits.row<float>(0);
      found.emplace_back(row, row + out.logits.dim(1));
      if (depth == drafts.size()) return found;
      trees[0].guess(int(depth), drafts[depth]);
      segments = {{&sequence, 0, &trees[0], int(depth) + 1}};
    }
  }

  std::unique_ptr<Backend> backend;
  std::function<nlohmann::json(const std::string& name)> as_named = directory_of_golden;  // the option of a head
  Models models;
  Registries registries = all_registries();
  PagePool pool{*backend, 1 << 16, 64};
  Host host{*backend, pool, models.target->info(), {}, false, {models.target, nullptr, &registries}};
  std::vector<Tap> taps;
  std::unique_ptr<LevelModel> model;
  std::optional<TargetStates> states;
  std::optional<Host> viewing;  // of what views the target's cache
  Sequence sequence;
};

}  // namespace foretoken::test
