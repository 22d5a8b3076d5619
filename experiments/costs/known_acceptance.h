// What is known of how many tokens of a draft are accepted, before a run is measured: a number, or what earlier results
// of the same pair have. This module must not know what steps cost.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/result.h"
#include "framework/decode/draft_tree.h"

namespace foretoken {

// Of a round. Levels beyond the last are as the last.
struct RoundRates {
  std::vector<double> accept;   // by level: the share of rounds that reached the level before which accepted this one
  std::vector<double> drafted;  // by level: the share of rounds whose draft has it; 1 of a drafter that always drafts
  double accept_at(int level) const { return at(accept, level); }  // from 0
  double drafted_at(int level) const { return at(drafted, level); }

 private:
  static double at(const std::vector<double>& rates, int level) {
    return rates.empty() ? 0 : rates[std::min(rates.size() - 1, std::size_t(level))];
  }
};

class KnownAcceptance {
 public:
  // Of one prompt, by level: how often it was reached, and accepted.
  struct Counts {
    std::vector<double> reached, accepted;
  };
  // Rates that are given, by level.
  explicit KnownAcceptance(std::vector<double> rates);
  // A level that was reached fewer than 30 times has the rate of the one before it. An Error, which `where` begins,
  // where that is so of the first.
  KnownAcceptance(std::vector<Counts> prompts, std::vector<double> drafted, const std::string& where);

  // Resample 0 has every prompt once; others draw as many with replacement, always the same.
  RoundRates rates(std::uint32_t resample) const;

 private:
  std::vector<Counts> prompts_;
  std::vector<double> given_, drafted_;
};

// What --acceptance names.
class AcceptanceSource {
 public:
  // A number from 0 to 1, or several for the levels, "0.8,0.7,0.6"; or a file of results, in which runs of the same
  // target, drafter, verifier and sampling, and of chains or of trees of as many nodes, are counted together, whatever
  // their batch and length.
  // Empty: nothing is known. Anything else is an Error.
  static AcceptanceSource read(const std::string& given);

  // `most`: the largest budget of the run's policy. None where nothing is known; an Error where the file has nothing of
  // such a run.
  std::optional<KnownAcceptance> of(const nlohmann::json& run, const Budget& most) const;

 private:
  std::optional<KnownAcceptance> given_;
  std::vector<Result> results_;
  std::string file_;
};

}  // namespace foretoken
