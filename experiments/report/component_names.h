// What a drafter, verifier or policy is called wherever runs are shown: in tables, plots, comparisons and notebooks.
// This module must not know components, only the runs' JSON documents.
#pragma once
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace foretoken {

// A run's value at a pointer, null if absent; a model as one string: "experiments/models/target inflated to
// llama-3.1-8b".
nlohmann::json told(const nlohmann::json& run, const std::string& pointer);

// The last part of a path or pointer.
std::string last_part(const std::string& path);
// A value as text; a path is told by its last part where none of `others` ends alike.
std::string value_text(const nlohmann::json& value, const std::vector<nlohmann::json>& others);

// "draft_tree (shape 4 2 1, cut)": a component's name and all options in which those of the same name differ, in some
// runs; the drafters that it is made of always: "first_hit (ngram, draft_model)". Two that differ never have one name.
// A draft's length and nodes are told apart from the policy.
class ComponentNames {
 public:
  // Options at the pointers `apart` are told elsewhere, as in a table's title, and are in no name.
  explicit ComponentNames(const std::vector<nlohmann::json>& runs, const std::vector<std::string>& apart = {});

  // Whether a pointer is that of a component: "/drafter", "/verifier", "/policy".
  static bool names(const std::string& pointer);
  // Whether it lies in one, and is told by its name.
  static bool covers(const std::string& pointer);
  // Null where the run has none.
  nlohmann::json name(const nlohmann::json& run, const std::string& pointer) const;

 private:
  struct Option {
    std::vector<nlohmann::json> values;  // distinct ones
    int count = 0;                       // components that have it
  };
  void note(const nlohmann::json& component, const std::string& place, const std::string& pointer);
  std::string text(const nlohmann::json& component, const std::string& place, const std::string& pointer) const;
  template <class F> void each_option(const nlohmann::json& component, const std::string& pointer, const F& f) const;
  bool differs(const std::string& place, const std::string& key) const;

  std::vector<std::string> apart_;
  std::map<std::string, int> count_;  // of components, by their place: "/drafter:first_hit/drafters:ngram"
  std::map<std::string, std::map<std::string, Option>> options_;  // by place and key
};

}  // namespace foretoken
