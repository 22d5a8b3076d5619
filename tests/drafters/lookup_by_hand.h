// A drafter that looks up what it guesses, asked for single trees without an engine.
#pragma once
#include <map>

#include "experiments/conformance/scenario.h"
#include "framework/components/host.h"
#include "tests/support/sentence.h"

namespace foretoken::test {

using nlohmann::json;

struct GuessedNode {
  int parent;
  Token token;
  bool operator==(const GuessedNode&) const = default;
};
using Nodes = std::vector<GuessedNode>;  // below the root, in order

inline std::ostream& operator<<(std::ostream& out, const GuessedNode& n) { return out << n.parent << ">" << n.token; }

class LookupByHand {
 public:
  explicit LookupByHand(const json& options)
      : host_(backend_, pool_, info_, {}, false, {.registries = &known()}),
        drafter_(known().drafters.make(options, host_)) {}

  // Memory alone is asked of it.
  static Backend& device() {
    static const std::unique_ptr<Backend> kDevice = make_reference_backend();
    return *kDevice;
  }
  static Sequence sequence(const std::vector<Token>& text, SequenceId id) {
    Sequence s;
    s.tokens = text, s.id = id;
    return s;
  }
  DraftTree draft(const Sequence& s, const Budget& budget) {
    DraftRequest request;
    request.sequence = &s, request.budget = budget;
    return std::move(drafter_->draft({&request, 1}).front());
  }
  static Nodes nodes(const DraftTree& tree) {
    Nodes all;
    for (int n = 1; n < tree.nodes; ++n) all.push_back({*tree.parents.row<std::int32_t>(n), *tree.known.row<Token>(n)});
    return all;
  }
  // Of the sequence `id`, or of one that is then forgotten, and from which nothing is learned.
  Nodes tree(const std::vector<Token>& text, const Budget& budget, SequenceId id = 0) {
    Sequence s = sequence(text, id > 0 ? id : --last_);
    const Nodes all = nodes(draft(s, budget));
    s.finish = Finish::failed;
    if (id == 0) drafter_->forget(s);
    return all;
  }
  // A sequence ends.
  void finish(const std::vector<Token>& text, int prompt_length, Finish how = Finish::length) {
    Sequence s = sequence(text, --last_);
    s.prompt_length = prompt_length, s.finish = how;
    drafter_->forget(s);
  }
  Drafter& drafter() { return *drafter_; }
  std::string notice() const { return drafter_->notice(); }

 private:
  static const Registries& known() {
    static const Registries kAll = conformance::all_registries();
    return kAll;
  }
  static ModelInfo target() {
    ModelInfo info;
    info.name = "target", info.vocab = 100;
    return info;
  }

  Backend& backend_ = device();
  PagePool pool_{backend_, 64, 1};
  ModelInfo info_ = target();
  Host host_;
  std::unique_ptr<Drafter> drafter_;
  SequenceId last_ = SequenceId(1) << 40;
};

}  // namespace foretoken::test
