// A drafter that answers from the outputs of earlier requests. Built by plugins_test.py as a user would build it.
#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <foretoken/plugin.h>

namespace foretoken {
namespace {

class Remembering : public Drafter {
 public:
  explicit Remembering(Backend& backend) : backend_(backend) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      std::vector<Token> tokens = requests[i].sequence->tokens;
      for (int left = requests[i].budget.chain(); left > 0; --left) {
        const auto next = next_.find(tail(tokens));
        if (next == next_.end()) break;
        tokens.push_back(next->second);
        trees[i].guess(trees[i].nodes - 1, next->second);
      }
    }
    return trees;
  }

  void forget(const Sequence& sequence) override {
    const std::span<const Token> tokens(sequence.tokens);
    for (std::size_t at = 3; at < tokens.size(); ++at) next_[tail(tokens.first(at))] = tokens[at];
  }

 private:
  static std::vector<Token> tail(std::span<const Token> tokens) {
    const auto last = tokens.last(std::min<std::size_t>(3, tokens.size()));
    return {last.begin(), last.end()};
  }

  Backend& backend_;
  std::map<std::vector<Token>, Token> next_;
};

}  // namespace
}  // namespace foretoken

extern "C" const char* foretoken_abi() { return foretoken::kAbi; }
extern "C" void foretoken_plugin(foretoken::Registries& r) {
  using namespace foretoken;
  r.drafters.add(
      "remembering",
      {"what followed before",
       "",
       {},
       [](const nlohmann::json&, Host& host) { return std::make_unique<Remembering>(host.backend()); },
       [](const nlohmann::json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain}, .learns = true}; }});
}
