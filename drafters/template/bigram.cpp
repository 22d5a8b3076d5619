// A drafter to copy: a bigram table of the sequence so far. Each guess is the most frequent follower of the token
// before it (the latest among equals). It has no model and draws nothing. Adaptive n-gram drafting: Ou et al. 2024
// (arXiv 2404.08698).
#include <unordered_map>

#include <foretoken/plugin.h>

namespace foretoken {
namespace {

// How often each token followed each other token in one sequence.
struct Table {
  int seen = 1;  // tokens counted, of which the first follows none
  std::unordered_map<Token, std::unordered_map<Token, int>> counts;
  std::unordered_map<Token, Token> best;

  void learn(const std::vector<Token>& tokens) {
    for (; seen < int(tokens.size()); ++seen) {
      const Token before = tokens[seen - 1], now = tokens[seen];
      auto& followers = counts[before];
      if (++followers[now] >= followers[best.emplace(before, now).first->second]) best[before] = now;
    }
  }
};

class Bigram : public Drafter {
 public:
  explicit Bigram(Backend& backend) : backend_(backend) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      Table& table = tables_[requests[i].sequence->id];
      table.learn(requests[i].sequence->tokens);
      Token last = requests[i].sequence->last();
      for (int n = 0; n < requests[i].budget.chain() && table.best.contains(last); ++n)
        trees[i].guess(n, last = table.best.at(last));  // a child of node n
    }
    return trees;
  }
  void forget(const Sequence& sequence) override { tables_.erase(sequence.id); }

 private:
  Backend& backend_;
  std::unordered_map<SequenceId, Table> tables_;
};

}  // namespace

Entry<Drafter> bigram() {
  const auto make = [](const nlohmann::json&, Host& host) { return std::make_unique<Bigram>(host.backend()); };
  const auto traits = [](const nlohmann::json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain}}; };
  return {"the most frequent follower of each token", "arXiv 2404.08698", {}, make, traits};
}
}  // namespace foretoken

extern "C" const char* foretoken_abi() { return foretoken::kAbi; }
extern "C" void foretoken_plugin(foretoken::Registries& r) { r.drafters.add("bigram", foretoken::bigram()); }
