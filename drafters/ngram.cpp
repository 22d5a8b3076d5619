// Prompt lookup: guesses the tokens that followed earlier occurrences of the last n tokens, longest n first, the latest
// occurrence first. Several different continuations become a tree in which common beginnings are shared. It has no
// model, no state and draws nothing: every guess is certain. A round looks once at each token of the text, until it has
// enough. Saxena 2023 (prompt lookup decoding); Yang et al. 2023 (LLMA, arXiv 2304.04487).
#include <algorithm>

#include "drafters/drafters.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

class Ngram : public Drafter {
 public:
  Ngram(Backend& backend, int longest, int shortest, int candidates)
      : backend_(backend), longest_(longest), shortest_(shortest), candidates_(candidates) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i)
      if (requests[i].budget.drafts()) grow(trees[i], requests[i].sequence->tokens, requests[i].budget);
    return trees;
  }

 private:
  void grow(DraftTree& tree, std::span<const Token> tokens, const Budget& budget) {
    // Ends of the occurrences that are not as long as can be, by their lengths: the latest first.
    found_.resize(std::size_t(longest_));
    for (std::vector<int>& ends : found_) ends.clear();
    int left = candidates_;
    const auto enough = [&](int end) {
      left -= add(tree, tokens, end, budget);
      return left == 0 || tree.nodes == budget.nodes;
    };
    for (int end = latest(tokens, int(tokens.size())); end > 0; end = latest(tokens, end)) {
      const int n = match(tokens, end);
      if (n == longest_) {
        if (enough(end)) return;
      } else if (n >= shortest_ && (candidates_ > 1 || found_[std::size_t(n)].empty())) {
        found_[std::size_t(n)].push_back(end);
      }
    }
    for (int n = longest_ - 1; n >= shortest_; --n)
      for (const int end : found_[std::size_t(n)])
        if (enough(end)) return;
  }

  // The greatest end < `before` such that tokens[end - 1] is the last token; 0: none. The inner loop has no branch, so
  // that it compares several tokens at once.
  static int latest(std::span<const Token> tokens, int before) {
    constexpr int kBlock = 16;
    const Token last = tokens.back(), *t = tokens.data();
    int end = before - 1;
    for (; end >= kBlock; end -= kBlock) {
      const Token* block = t + end - kBlock;
      int equal = 0;
      for (int i = 0; i < kBlock; ++i) equal |= block[i] == last;
      if (equal) break;
    }
    while (end > 0 && t[end - 1] != last) --end;
    return end;
  }

  // How many tokens before `end` are the last ones of all, at most `longest`.
  int match(std::span<const Token> tokens, int end) const {
    int n = 1;
    while (n < std::min(longest_, end) &&
           tokens[std::size_t(end - 1 - n)] == tokens[tokens.size() - 1 - std::size_t(n)])
      ++n;
    return n;
  }

  // Adds what stands at `end` as a path below the root, within the budget. Whether any of it is new.
  static bool add(DraftTree& tree, std::span<const Token> tokens, int end, const Budget& budget) {
    const int before = tree.nodes;
    for (int node = 0, depth = 0; depth < budget.depth && end < int(tokens.size()); ++depth, ++end) {
      int child = tree.match(node, tokens[std::size_t(end)]);
      if (child < 0 && tree.nodes == budget.nodes) break;
      node = child >= 0 ? child : tree.guess(node, tokens[std::size_t(end)]);
    }
    return tree.nodes > before;
  }

  Backend& backend_;
  int longest_, shortest_, candidates_;
  std::vector<std::vector<int>> found_;
};

}  // namespace

Entry<Drafter> ngram() {
  return {"prompt lookup: what followed the same n tokens before",
          "github.com/apoorvumang/prompt-lookup-decoding; arXiv 2304.04487",
          {{"longest", "integer", 3, "the longest match tried, tokens", false, 1, 64},
           {"shortest", "integer", 2, "the shortest match tried, tokens", false, 1, 64},
           {"candidates", "integer", 1,
            "the most different continuations that become branches of a tree, 1 to 64: of the longest matches first, "
            "among equals of the latest; needs more nodes than levels",
            false, 1, 64}},
          [](const nlohmann::json& o, Host& host) {
            const int longest = o.at("longest").get<int>(), shortest = o.at("shortest").get<int>();
            if (longest < shortest)
              throw Error("drafter 'ngram' would never find a match: its 'longest' is " + std::to_string(longest) +
                          ", its 'shortest' " + std::to_string(shortest) + "; raise 'longest' or lower 'shortest'");
            return std::make_unique<Ngram>(host.backend(), longest, shortest, o.at("candidates").get<int>());
          },
          [](const nlohmann::json&, const ModelInfo&) {
            return Needs{.proposes = {Drawn::certain}, .below_drafts = true};  // it keeps nothing
          },
          {{{"longest", 3}, {"shortest", 1}}, {{"longest", 2}, {"shortest", 2}}, {{"shortest", 1}, {"candidates", 3}}}};
}

}  // namespace foretoken
