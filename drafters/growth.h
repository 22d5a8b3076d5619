// The ways in which a drafter with a model grows its trees: a chain, a tree of a fixed shape, or one whose shape
// follows the draft's probabilities. Drafters that differ by their model alone share them. This module must not know
// which model it is.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/components/round_model.h"

namespace foretoken {

struct Growth {
  Needs needs;
  std::function<std::unique_ptr<Drafter>(Host&, std::unique_ptr<LevelModel>)> grow;
  std::unique_ptr<Drafter> make(Host& host, RoundModel model) const {
    return grow(host, std::make_unique<RoundModel>(std::move(model)));
  }
};

// Each reads its options, complete, and names `drafter` in messages. `target`: ModelInfo() where it is not known yet.
Growth chain_growth(const nlohmann::json& options, const std::string& drafter);
// `marginals`: LevelModel::marginals() of the model.
Growth tree_growth(const nlohmann::json& options, const std::string& drafter, const ModelInfo& target,
                   bool marginals = false);
Growth dynamic_growth(const nlohmann::json& options);

std::vector<Option> chain_options();    // temperature
std::vector<Option> tree_options();     // shape, cut, draws, temperature
std::vector<Option> dynamic_options();  // width, expand

// `options`, and all of these as options of one drafter with "growth", which chooses: "chain", "tree" or "dynamic".
// What is not given has the default of its kind; an option of another kind is an Error.
std::vector<Option> with_growth_options(std::vector<Option> options = {});
Growth chosen_growth(nlohmann::json options, const std::string& drafter, const ModelInfo& target,
                     bool marginals = false);

}  // namespace foretoken
