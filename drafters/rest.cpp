// Retrieval from a datastore: the longest end of the context that occurs in the datastore's texts is looked up, and the
// most frequent beginnings of what follows it there become a tree. He et al. 2023 (REST, arXiv 2311.08252). A search
// reads the suffix array and the texts in some log2(longest) + 1 binary searches, and those of a step are made side by
// side: 64 sequences take about 0.2 ms on one core of an AMD EPYC, with 10^7 tokens and with 10^8, once the pages
// that they read are mapped.
#include <algorithm>
#include <filesystem>

#include "drafters/datastore.h"
#include "drafters/drafters.h"
#include "kernels/error.h"
#include "kernels/philox.h"

namespace foretoken {
namespace {

using nlohmann::json;

class Rest : public Drafter {
 public:
  struct Options {
    int longest, shortest, matches;
  };
  Rest(Backend& backend, std::shared_ptr<const Datastore> store, const Options& options)
      : backend_(backend), store_(std::move(store)), options_(options) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    searches_.assign(requests.size(), {});
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (requests[i].budget.drafts()) searches_[i].context = requests[i].sequence->tokens;
    store_->find(searches_, options_.longest, options_.shortest);
    choose_continuations();
    for (std::size_t i = 0; i < requests.size(); ++i) grow(trees[i], requests[i].budget, std::size_t(i));
    return trees;
  }

 private:
  // Continuations [first, last) that agree in `depth` tokens before `token`, and in it.
  struct Branch {
    int first, last, parent, depth;
    Token token;
    int order;  // of branches of equal frequency, first the one that was found first
    bool operator<(const Branch& o) const {
      return last - first != o.last - o.first ? last - first < o.last - o.first : order > o.order;
    }
  };

  // Where the continuations of each search begin: of at most `matches` of its matches, evenly spaced. They are in the
  // order of their tokens, as suffixes are.
  void choose_continuations() {
    begins_.clear(), starts_.assign(1, 0);
    const auto count = [&](const Datastore::Search& s) {
      return s.length == 0 ? 0 : std::min(s.last - s.first, std::uint32_t(options_.matches));
    };
    const auto chosen = [&](const Datastore::Search& s, std::uint32_t k, std::uint32_t n) {
      return s.first + std::uint32_t(std::uint64_t(s.last - s.first) * k / n);
    };
    for (const Datastore::Search& s : searches_)
      for (std::uint32_t k = 0, n = count(s); k < n; ++k) store_->fetch_begin(chosen(s, k, n));
    for (const Datastore::Search& s : searches_) {
      for (std::uint32_t k = 0, n = count(s); k < n; ++k) {
        begins_.push_back(std::int64_t(store_->begin(chosen(s, k, n))) + s.length);
        store_->fetch_token(begins_.back());
      }
      starts_.push_back(int(begins_.size()));
    }
  }

  // Adds the most frequent beginnings of the continuations of search `i` to a tree.
  void grow(DraftTree& tree, const Budget& budget, std::size_t i) {
    branches_.clear();
    int order = 0;
    // The branches of the continuations [first, last) below `parent`, `depth` tokens down.
    const auto split = [&](int first, int last, int parent, int depth) {
      for (int k = first, end; k < last; k = end) {
        const Token token = store_->token(begins_[std::size_t(k)] + depth);
        for (end = k + 1; end < last && store_->token(begins_[std::size_t(end)] + depth) == token;) ++end;
        if (token == Datastore::kSeparator) continue;
        branches_.push_back({k, end, parent, depth, token, order++});
        std::push_heap(branches_.begin(), branches_.end());
      }
    };
    if (budget.drafts()) split(starts_[i], starts_[i + 1], 0, 0);
    while (!branches_.empty() && tree.nodes < budget.nodes) {
      std::pop_heap(branches_.begin(), branches_.end());
      const Branch b = branches_.back();
      branches_.pop_back();
      const int node = tree.guess(b.parent, b.token);
      if (b.depth + 1 < budget.depth) split(b.first, b.last, node, b.depth + 1);
    }
  }

  Backend& backend_;
  std::shared_ptr<const Datastore> store_;
  Options options_;
  std::vector<Datastore::Search> searches_;  // of the step, as all below
  std::vector<std::int64_t> begins_;         // of continuations
  std::vector<int> starts_;                  // [searches + 1]: of the continuations of each search
  std::vector<Branch> branches_;             // a heap
};

// Tokens that mean nothing: each has at most four successors, one of them in half of all places.
std::shared_ptr<const Datastore> random_store(int tokens, const ModelInfo& target) {
  std::vector<Token> all{0};
  const auto number = [](int a, int b) {
    return philox4x32_10(std::uint32_t(a), std::uint32_t(b), 0, 0, 1, 0).word[0];
  };
  while (int(all.size()) < tokens) {
    const std::uint32_t chance = number(int(all.size()), 0) % 16;
    const int successor = chance < 8 ? 1 : chance < 12 ? 2 : chance < 15 ? 3 : 4;
    all.push_back(Token(number(all.back(), successor) % std::uint32_t(target.vocab)));
  }
  return std::make_shared<const Datastore>(Datastore::bytes_of(all, target.vocab, target.vocabulary));
}

// How many tokens {"random": TOKENS} has.
int random_tokens(const json& datastore) {
  const json tokens = datastore.value("random", json());
  if (datastore.size() != 1 || !tokens.is_number_integer() || tokens < 1 || tokens > 1'000'000'000)
    throw Error("the datastore " + datastore.dump() +
                " of the drafter 'rest' must be the path of a file, or {\"random\": TOKENS}");
  return tokens.get<int>();
}

std::shared_ptr<const Datastore> open_store(const json& datastore, const ModelInfo& target) {
  if (datastore.is_object()) return random_store(random_tokens(datastore), target);
  const std::string file = datastore.get<std::string>();
  auto store = std::make_shared<const Datastore>(std::filesystem::path(file));
  if (store->tokenizer() != target.vocabulary || store->vocab() > target.vocab)
    throw Error("the datastore " + file + " holds tokens of another tokenizer than that of " + target.name +
                "; build one with foretoken datastore TEXTS --model DIR, where DIR is this target");
  return store;
}

// Shared by all engines, until the file is replaced.
std::shared_ptr<const Datastore> kept_store(const json& datastore, Host& host) {
  const ModelInfo& target = host.target();
  std::string key = "datastore " + datastore.dump() + " ";
  std::error_code gone;
  if (datastore.is_string())
    key +=
        std::to_string(std::filesystem::last_write_time(datastore.get<std::string>(), gone).time_since_epoch().count());
  key += " " + std::to_string(target.vocab) + " " + std::to_string(target.vocabulary);
  return host.keep<Datastore>(key, [&] { return open_store(datastore, target); });
}

}  // namespace

Entry<Drafter> rest() {
  return {"a tree of what most often follows the longest match in a datastore of texts",
          "arXiv 2311.08252",
          {{"datastore", "path or object", nullptr,
            "a file that foretoken datastore wrote, or {\"random\": TOKENS}, which mean nothing"},
           {"longest", "integer", 16, "the longest match that is looked for, tokens", false, 1, 64},
           {"shortest", "integer", 2, "the shortest match, tokens", false, 1, 64},
           {"matches", "integer", 64, "of places that match, so many are merged, evenly spaced", false, 1, 100'000}},
          [](const json& o, Host& host) {
            const Rest::Options options{o.at("longest"), o.at("shortest"), o.at("matches")};
            if (options.longest < options.shortest)
              throw Error("drafter 'rest' would never find a match: its 'longest' is " +
                          std::to_string(options.longest) + ", its 'shortest' " + std::to_string(options.shortest) +
                          "; raise 'longest' or lower 'shortest'");
            return std::make_unique<Rest>(host.backend(), kept_store(o.at("datastore"), host), options);
          },
          [](const json& o, const ModelInfo& target) {
            // Before anything is loaded; where no target is known yet, its file cannot be judged.
            if (const json& d = o.at("datastore"); d.is_string() && !target.kv.layers.empty()) open_store(d, target);
            return Needs{.proposes = {Drawn::certain}, .below_drafts = true};
          },
          {{{"datastore", {{"random", 400}}}, {"longest", 5}, {"shortest", 1}, {"matches", 7}},
           {{"datastore", {{"random", 3000}}}}}};
}

}  // namespace foretoken
