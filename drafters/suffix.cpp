// SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975): guesses what followed the last tokens before, in the request's
// own prompt and output and in the outputs of past requests. Both are suffix trees with counts; of each the most
// probable tree of guesses is made, and the one that promises more accepted tokens is proposed. It has no model and
// draws nothing: every guess is certain. A token of a request costs one suffix in its own tree when it is new, and one
// in the shared tree when the request has ended. No draw must judge a guess that it made itself: a sampled request gets
// none from the shared tree while an output of its seed and stream is there, of a request that came before.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "drafters/drafters.h"
#include "drafters/likely_paths.h"
#include "drafters/shared_index.h"
#include "drafters/shared_outputs.h"

namespace foretoken {
namespace {

constexpr int kPatternDepth = Occurrences::kMostTail;  // tokens of a match and of the guesses behind it
constexpr int kLongestMatch = kPatternDepth / 2;

// For a search of the last two and three tokens.
void prefetch_last(const SuffixTree& tree, std::span<const Token> tokens) {
  for (std::size_t n = 2; n <= std::min<std::size_t>(3, tokens.size()); ++n)
    tree.prefetch(tokens[tokens.size() - n], tokens[tokens.size() - n + 1]);
}

// The tokens of one request. A suffix is counted when it has as many tokens as the tree is deep; later ones are found
// in the text itself.
class OwnText {
 public:
  void follow(std::span<const Token> tokens) {
    const auto known = std::size_t(tree_.end());
    tree_.append(tokens.subspan(known));
    for (; counted_ + kPatternDepth <= int(tokens.size()); ++counted_)
      tree_.insert(SuffixTree::Position(counted_), kPatternDepth);
  }
  void prefetch(std::span<const Token> tokens) const {
    constexpr int kUsual = 4;  // new tokens of a round
    prefetch_last(tree_, tokens);
    for (int at = counted_; at < std::min(counted_ + kUsual, int(tokens.size()) - kPatternDepth + 1); ++at)
      tree_.prefetch(tokens[std::size_t(at)], tokens[std::size_t(at) + 1]);
  }
  Occurrences occurrences(std::span<const Token> tokens, int longest) const {
    return {tree_, tokens, counted_, longest};
  }

 private:
  SuffixTree tree_{kPatternDepth};
  int counted_ = 0;
};

// None at temperature 0, where draws change no output.
std::optional<SharedOutputs::Source> source_of(const Sequence& s) {
  if (s.sampling.temperature == 0) return std::nullopt;
  return SharedOutputs::Source{s.sampling.seed, s.stream};
}

class Suffix : public Drafter {
 public:
  // `shared`: null where the own tokens are all that is known.
  Suffix(Backend& backend, int longest, const PathLimits& limits, std::unique_ptr<SharedOutputs> shared)
      : backend_(backend), longest_(longest), limits_(limits), shared_(std::move(shared)) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    guesses_.assign(requests.size(), {});
    for (const DraftRequest& r : requests)
      if (const auto own = own_.find(r.sequence->id); own != own_.end()) own->second.prefetch(r.sequence->tokens);
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (requests[i].budget.drafts()) guesses_[i] = own_guesses(requests[i]);
    if (shared_)
      shared_->read([&](const SuffixTree& tree, const SharedOutputs::Sources& sources) {
        for (const DraftRequest& r : requests) prefetch_last(tree, r.sequence->tokens);
        for (std::size_t i = 0; i < requests.size(); ++i)
          if (const auto drawn = source_of(*requests[i].sequence); !drawn || !sources.contains(*drawn))
            better_of_shared(tree, requests[i], guesses_[i]);
          else
            withheld_ += requests[i].budget.drafts();
      });
    for (std::size_t i = 0; i < trees.size(); ++i)
      for (const Guesses::Node& node : guesses_[i].nodes) trees[i].guess(node.parent + 1, node.token);
    return trees;
  }

  void forget(const Sequence& sequence) override {
    if (sequence.running()) return;  // what is kept takes no pages
    own_.erase(sequence.id);
    if (shared_ && sequence.finish != Finish::failed)
      shared_->add(std::span(sequence.tokens).subspan(std::size_t(sequence.prompt_length)), source_of(sequence));
  }

  std::string notice() const override {
    if (!shared_) return {};
    std::string text;
    if (withheld_ > 0)
      text = "used no past outputs in " + std::to_string(withheld_) +
             " rounds of sampled requests, since its index had outputs of the same seed and stream";
    if (const std::int64_t evicted = shared_->books().evicted; evicted > 0)
      text += (text.empty() ? "" : ", and ") + ("evicted " + std::to_string(evicted)) +
              " tokens of the oldest outputs, since its index was full; raise 'tokens' to keep more";
    return text.empty() ? text : "the drafter 'suffix' " + text;
  }

 private:
  Guesses own_guesses(const DraftRequest& request) {
    const std::span<const Token> tokens = request.sequence->tokens;
    OwnText& own = own_[request.sequence->id];
    own.follow(tokens);
    return likely_paths(own.occurrences(tokens, longest_), limits_, request.budget);
  }

  void better_of_shared(const SuffixTree& tree, const DraftRequest& request, Guesses& best) const {
    if (best.score >= request.budget.nodes - 1) return;  // it could not be better
    const std::span<const Token> tokens = request.sequence->tokens;
    best = likely_paths({tree, tokens, int(tokens.size()), longest_}, limits_, request.budget, std::move(best));
  }

  Backend& backend_;
  int longest_;
  PathLimits limits_;
  std::unique_ptr<SharedOutputs> shared_;
  std::int64_t withheld_ = 0;  // rounds of requests to whose draws it owed outputs
  std::unordered_map<SequenceId, OwnText> own_;
  std::vector<Guesses> guesses_;
};

}  // namespace

Entry<Drafter> suffix() {
  return {
      "what followed the last tokens in this request and in past outputs, by frequency: SuffixDecoding",
      "arXiv 2411.04975",
      {{"index", "string", "shared",
        "what is searched: request (its own prompt and output) or shared (past outputs of the engine too)"},
       {"longest", "integer", 16, "the longest match that is looked for, tokens, 1 to 32", false, 1, kLongestMatch},
       {"factor", "number", 1, "the most guesses for each token of the match, above 0", false, 0.01, kMaxNodes},
       {"least", "number", 0.1, "the least probability of a guess by frequencies, 0 to 1", false, 0, 1},
       {"tokens", "integer", 500000,
        "past outputs in the shared index, tokens of about 150 bytes; the oldest outputs are evicted", false, 1, 1e9}},
      [](const nlohmann::json& o, Host& host) {
        auto shared = shares_index(o, "suffix")
                          ? std::make_unique<SharedOutputs>(kPatternDepth, o.at("tokens").get<std::int64_t>())
                          : nullptr;
        return std::make_unique<Suffix>(host.backend(), o.at("longest").get<int>(),
                                        PathLimits{o.at("factor").get<double>(), o.at("least").get<double>()},
                                        std::move(shared));
      },
      [](const nlohmann::json& o, const ModelInfo&) {
        return Needs{.proposes = {Drawn::certain}, .learns = shares_index(o, "suffix"), .confidence = true};
      },
      {{{"index", "request"}, {"longest", 4}, {"factor", 4}, {"least", 0}}, {{"tokens", 40}, {"factor", 2}}}};
}

}  // namespace foretoken
