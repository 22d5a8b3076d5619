// Prompt lookup: guesses the tokens that followed the latest earlier occurrence of the last n tokens, longest n first.
// It has no model and draws nothing: every guess is certain. Saxena 2023 (prompt lookup decoding); Yang et al. 2023
// (LLMA, arXiv 2304.04487).
#include <algorithm>

#include "drafters/drafters.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

class Ngram : public Drafter {
 public:
  Ngram(Backend& backend, int longest, int shortest) : backend_(backend), longest_(longest), shortest_(shortest) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i)
      for (const Token guess : continuation(requests[i].sequence->tokens, requests[i].budget.chain()))
        trees[i].guess(trees[i].nodes - 1, guess);
    return trees;
  }

 private:
  // Up to `most` tokens that followed the latest earlier occurrence of the last n tokens.
  std::span<const Token> continuation(std::span<const Token> tokens, int most) const {
    const int length = int(tokens.size());
    for (int n = std::min(longest_, length - 1); n >= shortest_ && most > 0; --n) {
      const auto tail = tokens.last(std::size_t(n));
      for (int at = length - n - 1; at >= 0; --at)
        if (tokens[std::size_t(at + n - 1)] == tail.back() &&
            std::ranges::equal(tokens.subspan(std::size_t(at), std::size_t(n)), tail))
          return tokens.subspan(std::size_t(at + n), std::size_t(std::min(most, length - at - n)));
    }
    return {};
  }

  Backend& backend_;
  int longest_, shortest_;
};

}  // namespace

Entry<Drafter> ngram() {
  return {"prompt lookup: what followed the same n tokens before",
          "github.com/apoorvumang/prompt-lookup-decoding; arXiv 2304.04487",
          {{"longest", "integer", 3, "the longest match tried, tokens", false, 1, 64},
           {"shortest", "integer", 2, "the shortest match tried, tokens", false, 1, 64}},
          [](const nlohmann::json& o, Host& host) {
            const int longest = o.at("longest").get<int>(), shortest = o.at("shortest").get<int>();
            if (longest < shortest)
              throw Error("drafter 'ngram' would never find a match: its 'longest' is " + std::to_string(longest) +
                          ", its 'shortest' " + std::to_string(shortest) + "; raise 'longest' or lower 'shortest'");
            return std::make_unique<Ngram>(host.backend(), longest, shortest);
          },
          [](const nlohmann::json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain}}; },
          {{{"longest", 3}, {"shortest", 1}}, {{"longest", 2}, {"shortest", 2}}}};
}

}  // namespace foretoken
