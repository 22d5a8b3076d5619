// Shared by the mutation tests: subjects, cases small enough for a full enumeration, and the check that a law failed.
#pragma once
#include <gtest/gtest.h>

#include "experiments/conformance/laws.h"
#include "tests/support/mutants.h"

namespace foretoken::test {

using namespace conformance;
using nlohmann::json;

inline const json kDraftModel{{"name", "draft_model"}, {"model", "table:far"}};
inline const json kSampling{{"name", "speculative_sampling"}};
inline const json kMutant{{"name", "mutant"}};

inline Subject subject(const Registries& registries, const json& drafter, const json& verifier, int length = 2) {
  return {registries, {drafter, {{"name", "fixed"}, {"length", length}}, verifier}};
}

inline ExactCase three_tokens() {
  return {.target = {.vocab = 3, .order = 2, .seed = 81, .strict = false}, .prompts = {{0, 1}}, .tokens = 3};
}
inline ExactCase two_tokens() {
  return {.target = {.vocab = 2, .order = 2, .seed = 83, .impossible = 0, .strict = false},
          .prompts = {{0, 1, 1}},
          .tokens = 3};
}

// The reference device with every draw renamed before it is drawn: planted bugs of naming. A race passes its position
// as the root, since its name holds the position.
class RenamingBackend : public ReferenceBackend, private Chance {
 public:
  using Rename = std::function<void(Draws&, DrawName&)>;
  explicit RenamingBackend(Rename rename) : rename_(std::move(rename)) {}
  Chance* chance() override { return this; }
  static std::function<std::unique_ptr<HostBackend>()> make(const Rename& rename) {
    return [rename] { return std::make_unique<RenamingBackend>(rename); };
  }

 private:
  bool accept(double probability, const Draws& draws, DrawName name) override {
    const Draws d = renamed(draws, name);
    return inner().accept(probability, d, name);
  }
  Token draw(int vocab, Probability p, const Draws& draws, DrawName name) override {
    const Draws d = renamed(draws, name);
    return inner().draw(vocab, p, d, name);
  }
  Token race(int vocab, Probability p, const Draws& draws, std::uint32_t position) override {
    Draws d = draws;
    DrawName name{Role::noise, 0, 0};
    d.root = position;
    rename_(d, name);
    return inner().race(vocab, p, d, d.root);
  }
  Draws renamed(Draws draws, DrawName& name) const {
    rename_(draws, name);
    return draws;
  }
  Chance& inner() {
    Chance* const set = ReferenceBackend::chance();
    return set ? *set : generator_;
  }

  Rename rename_;
  Generator generator_;
};

// The enumeration completed and found another distribution; it did not fail for another reason.
inline bool refuted(const Finding& f) { return !f.holds && f.what.find("total variation") != std::string::npos; }

}  // namespace foretoken::test
