// All requests of one call of Drafter::draft, and the trees that grow for them, in calls that are each for the whole
// batch: for drafters in a language where a call for each node would cost more than the draft. Draws have the names of
// their requests (DraftRequest::draw), so that whoever drafts owns no random generator. This module must not know which
// language.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/python/histories.h"
#include "framework/components/drafter.h"
#include "framework/decode/node_distributions.h"

namespace foretoken {

// What outlives one call.
struct DraftBooks {
  DraftBooks(Backend& device, int vocabulary, std::vector<Tap> states, std::string name)
      : backend(device), vocab(vocabulary), taps(std::move(states)), who(std::move(name)), distributions(device) {}
  Backend& backend;
  int vocab;
  std::vector<Tap> taps;  // Needs::hidden
  std::string who;        // "the drafter 'mine'": messages begin with it
  NodeDistributions distributions;
  Histories histories;
};

// Where nodes are to grow: below node `parent` of the tree of each of these requests.
struct Places {
  std::vector<int> requests, parents;
};

class DraftBatch {
 public:
  // Both must outlive the call of draft(), at whose end close() must be called: what needs them is an Error then.
  DraftBatch(DraftBooks& books, std::span<const DraftRequest> requests);

  int size() const { return size_; }
  const DraftRequest& request(int i) const;
  // Its tokens, prompt and output.
  const History& history(int i) { return books().histories.of(*request(i).sequence); }
  // i32 [size(), k], on the host: the last k tokens of each, the last one in the last column; -1 before the first.
  Tensor tails(int k) const;
  // f32 [rows, taps * width], on the host: the target's states at positions from `begin` on.
  Tensor hidden(int i, int begin) const;
  // How many positions have states.
  int states(int i) const { return request(i).hidden.rows(); }

  // Nodes of the tree of a request.
  int nodes(int i) const { return trees_[std::size_t(i)].nodes; }

  // Appends guesses to the end of the first path of each tree: tokens [size(), length], each row up to its first -1 and
  // as far as its budget goes.
  void guess(std::span<const Token> tokens, int length);
  // Guesses below given nodes, one for each place. The new nodes; -1 where the budget was used up.
  std::vector<int> guess_below(const Places& places, std::span<const Token> tokens);

  // Draws one token for each tree, below the end of its first path, from its row of logits f32 [size(), vocab], host or
  // device, warped as the sequence is; `temperature`: instead of the sequence's own (draft_warp). The tokens; -1 where
  // the budget was used up, or where nothing has probability.
  std::vector<Token> draw(const Tensor& logits, std::optional<float> temperature);
  struct Siblings {
    int children = 1;
    Drawn how = Drawn::chain;
    std::optional<float> temperature = {};
  };
  // Draws siblings below each given node from its row of logits [places, vocab]. The new nodes and their tokens,
  // [places * children]; -1 as above. Drawing twice below a node is an Error: its children are drawn from one q.
  struct Grown {
    std::vector<int> nodes;
    std::vector<Token> tokens;
  };
  Grown draw_below(const Places& places, const Tensor& logits, const Siblings& siblings);

  // The trees, and closes it.
  std::vector<DraftTree> take();
  void close();

 private:
  struct Drawing {
    Distributions q;
    std::vector<TokenDraw> draws = {};
    std::vector<std::pair<int, int>> nodes = {};  // request and node
    std::vector<std::size_t> at = {};             // of Grown
  };

  DraftBooks& books() const;
  void sprout(int i, int parent, int row, const Siblings& siblings, Drawing& drawing);
  Places tips() const;
  bool room(int request, int parent) const;
  int add(int request, int parent, Drawn how);
  void expect_places(const Places& places) const;
  void expect_logits(const Tensor& logits, std::size_t rows, const char* what) const;
  Distributions distributions(const Tensor& logits, std::span<const DistributionAfter> rows, bool adjusted) const;
  std::vector<Token> read(std::span<const std::pair<int, int>> nodes) const;

  DraftBooks* books_;
  std::span<const DraftRequest> requests_;
  int size_;
  std::vector<DraftTree> trees_;
  std::vector<std::vector<int>> depths_;  // of the nodes of each tree
  std::vector<int> tips_;                 // the end of the first path of each tree; -1: it may not go on
};

}  // namespace foretoken
