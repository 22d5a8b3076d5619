// Prompt lookup as a tree: wherever the last tokens stood before, what followed there is a branch. The longest match
// comes first, among equals the latest. Branches with a common beginning share its nodes. Prompt lookup with the
// longest match: github.com/apoorvumang/prompt-lookup-decoding; tries of many continuations: arXiv 2312.12728.
#include <algorithm>
#include <functional>

#include <foretoken/plugin.h>

using namespace foretoken;

class Branches : public Drafter {
 public:
  Branches(Backend& backend, int longest, int most) : backend_(backend), longest_(longest), most_(most) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);  // node 0 is the last token of each sequence
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const std::vector<Token>& tokens = requests[i].sequence->tokens;
      for (const Match& match : matches(tokens)) graft(trees[i], tokens, match.end, requests[i].budget);
    }
    return trees;
  }

 private:
  struct Match {
    int length, end;  // the `length` tokens before tokens[end] are the last tokens of the sequence
  };

  std::vector<Match> matches(const std::vector<Token>& tokens) const {
    const int size = int(tokens.size());
    std::vector<Match> found;
    for (int end = size - 1; end > 0; --end) {
      int length = 0;
      while (length < std::min(longest_, end) && tokens[end - 1 - length] == tokens[size - 1 - length]) ++length;
      if (length > 0) found.push_back({length, end});
    }
    std::ranges::stable_sort(found, std::greater{}, &Match::length);
    if (int(found.size()) > most_) found.resize(most_);
    return found;
  }

  // Adds tokens[at], tokens[at + 1], ... as a path below the root, within the budget.
  static void graft(DraftTree& tree, const std::vector<Token>& tokens, int at, const Budget& budget) {
    for (int node = 0, depth = 0; depth < budget.depth && at < int(tokens.size()); ++depth, ++at) {
      int child = tree.match(node, tokens[at]);
      if (child < 0) {
        if (tree.nodes >= budget.nodes) return;
        child = tree.guess(node, tokens[at]);
      }
      node = child;
    }
  }

  Backend& backend_;
  int longest_, most_;
};

Entry<Drafter> branches() {
  return {"prompt lookup as a tree: what followed each earlier match of the last tokens",
          "arXiv 2312.12728",
          {{"longest", "integer", 4, "tokens of a match that are compared, 1 to 64", false, 1, 64},
           {"most", "integer", 8, "the most matches that become branches, 1 to 255", false, 1, 255}},
          [](const nlohmann::json& o, Host& host) {
            return std::make_unique<Branches>(host.backend(), o.at("longest").get<int>(), o.at("most").get<int>());
          },
          [](const nlohmann::json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain}}; }};
}

extern "C" const char* foretoken_abi() { return kAbi; }
extern "C" void foretoken_plugin(Registries& registries) { registries.drafters.add("branches", branches()); }
