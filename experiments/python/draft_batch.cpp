#include "experiments/python/draft_batch.h"

#include <algorithm>
#include <map>
#include <utility>

#include "framework/components/round_model.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

bool is_adjusted(const Sampling& s) {
  return s.repetition_penalty != 1 || s.frequency_penalty != 0 || s.presence_penalty != 0 || !s.logit_bias.empty() ||
         s.constraint;
}

}  // namespace

DraftBatch::DraftBatch(DraftBooks& books, std::span<const DraftRequest> requests)
    : books_(&books), requests_(requests), size_(int(requests.size())), trees_(rooted(books.backend, requests)) {
  depths_.assign(requests.size(), {0});
  tips_.assign(requests.size(), 0);
}

DraftBooks& DraftBatch::books() const {
  if (!books_)
    throw Error("a batch was used after the call of draft() that it was given to; copy what is needed later");
  return *books_;
}

const DraftRequest& DraftBatch::request(int i) const {
  const std::string& who = books().who;
  if (i < 0 || i >= size_)
    throw Error(who + " asked for request " + std::to_string(i) + " of a batch of " + std::to_string(size_));
  return requests_[std::size_t(i)];
}

Tensor DraftBatch::tails(int k) const {
  const std::string& who = books().who;
  if (k < 1) throw Error(who + " asked for the last " + std::to_string(k) + " tokens; ask for one or more");
  Tensor tails = Tensor::host({size_, k}, DType::i32);
  for (int i = 0; i < size_; ++i) {
    const std::span<const Token> tokens = requests_[std::size_t(i)].sequence->tokens;
    const int given = std::min(k, int(tokens.size()));
    Token* const row = tails.row<Token>(i);
    std::fill(row, row + k - given, -1);
    std::ranges::copy(tokens.last(std::size_t(given)), row + k - given);
  }
  return tails;
}

Tensor DraftBatch::hidden(int i, int begin) const {
  const HiddenStates& states = request(i).hidden;
  if (books().taps.empty())
    throw Error(books().who +
                " reads hidden states that it did not ask for; name them in 'hidden' where it is registered");
  if (begin < 0 || begin > states.rows())
    throw Error(books().who + " asked for hidden states from position " + std::to_string(begin) +
                " on, and there are " + std::to_string(states.rows()) + " positions that have some");
  const int rows = states.rows() - begin;
  std::vector<std::uint64_t> at;
  for (int p = begin; p < states.rows(); ++p) states.append(p, books().taps, at);
  const std::int64_t halves = std::int64_t(books().taps.size()) * 2, width = halves * states.half();
  if (rows == 0) return Tensor::host({0, width}, DType::f32);
  Backend& backend = books().backend;
  const Tensor to = backend.allocate({rows * halves, states.half()}, DType::f32);
  backend.recall(backend.upload(Tensor::host_copy<std::uint64_t>(at, DType::u64)), to, states.dtype());
  Tensor found = to;
  if (to.device().kind != Device::Kind::cpu) {
    found = Tensor::host(to.shape(), DType::f32);
    backend.fetch(to, found);
    backend.synchronize();
  }
  return found.reshaped({rows, width});
}

// Whether a node below `parent` is within the budget of that request.
bool DraftBatch::room(int request, int parent) const {
  const Budget& budget = requests_[std::size_t(request)].budget;
  return parent >= 0 && budget.drafts() && trees_[std::size_t(request)].nodes < budget.nodes &&
         depths_[std::size_t(request)][std::size_t(parent)] < budget.depth;
}

int DraftBatch::add(int request, int parent, Drawn how) {
  std::vector<int>& depths = depths_[std::size_t(request)];
  depths.push_back(depths[std::size_t(parent)] + 1);
  int& tip = tips_[std::size_t(request)];
  const int node = trees_[std::size_t(request)].grow(parent, how);
  if (tip == parent) tip = node;
  return node;
}

void DraftBatch::expect_places(const Places& places) const {
  const std::string& who = books().who;
  if (places.requests.size() != places.parents.size())
    throw Error(who + " named " + std::to_string(places.requests.size()) + " requests and " +
                std::to_string(places.parents.size()) + " parents; give as many of both");
  for (std::size_t k = 0; k < places.requests.size(); ++k) {
    const int nodes_there = this->nodes((void(request(places.requests[k])), places.requests[k]));
    if (places.parents[k] < -1 || places.parents[k] >= nodes_there)
      throw Error(who + " named the parent " + std::to_string(places.parents[k]) + " in a tree of " +
                  std::to_string(nodes_there) + " nodes; the root is 0, and -1 grows nothing");
  }
}

void DraftBatch::expect_logits(const Tensor& logits, std::size_t rows, const char* what) const {
  if (logits.dim(0) == std::int64_t(rows) && logits.dim(1) == books().vocab) return;
  throw Error(books().who + " drew from logits of the shape " + logits.shape().text() + "; give float32 [" + what +
              ", " + "vocabulary], here [" + std::to_string(rows) + ", " + std::to_string(books().vocab) + "]");
}

void DraftBatch::guess(std::span<const Token> tokens, int length) {
  (void)books();
  for (int i = 0; i < size_; ++i)
    for (int k = 0; k < length; ++k) {
      const Token token = tokens[std::size_t(i) * std::size_t(length) + std::size_t(k)];
      const int tip = tips_[std::size_t(i)];
      if (token == -1 || !room(i, tip)) break;
      const int node = add(i, tip, Drawn::certain);
      *trees_[std::size_t(i)].known.row<Token>(node) = token;
    }
}

std::vector<int> DraftBatch::guess_below(const Places& places, std::span<const Token> tokens) {
  expect_places(places);
  if (tokens.size() != places.requests.size())
    throw Error(books().who + " guessed " + std::to_string(tokens.size()) + " tokens at " +
                std::to_string(places.requests.size()) + " places; give one for each");
  std::vector<int> nodes(tokens.size(), -1);
  for (std::size_t k = 0; k < tokens.size(); ++k)
    if (tokens[k] != -1 && room(places.requests[k], places.parents[k])) {
      nodes[k] = add(places.requests[k], places.parents[k], Drawn::certain);
      *trees_[std::size_t(places.requests[k])].known.row<Token>(nodes[k]) = tokens[k];
    }
  return nodes;
}

Places DraftBatch::tips() const {
  Places places;
  for (int i = 0; i < size_; ++i) places.requests.push_back(i);
  places.parents = tips_;
  return places;
}

std::vector<Token> DraftBatch::draw(const Tensor& logits, std::optional<float> temperature) {
  const Grown grown = draw_below(tips(), logits, {1, Drawn::chain, temperature});
  for (std::size_t i = 0; i < grown.tokens.size(); ++i)
    if (grown.tokens[i] < 0) tips_[i] = -1;
  return grown.tokens;
}

// Where sequences have penalties or biases the logits are adjusted, which happens in place: then in a copy, since the
// memory is the drafter's.
Distributions DraftBatch::distributions(const Tensor& logits, std::span<const DistributionAfter> rows,
                                        bool adjusted) const {
  Backend& backend = books().backend;
  if (adjusted) {
    const Tensor copy = backend.allocate(logits.shape(), DType::f32);
    backend.copy(logits, copy);
    return books().distributions.of(copy, rows);
  }
  std::vector<Warp> warps;
  for (const DistributionAfter& r : rows) warps.push_back(r.warp);
  return backend.distributions(logits.device() == backend.device() ? logits : backend.upload(logits), warps);
}

// The tokens of drawn nodes.
std::vector<Token> DraftBatch::read(std::span<const std::pair<int, int>> nodes) const {
  Backend& backend = books().backend;
  std::vector<Token> tokens(nodes.size());
  if (backend.device().kind == Device::Kind::cpu) {
    for (std::size_t k = 0; k < nodes.size(); ++k)
      tokens[k] = *trees_[std::size_t(nodes[k].first)].tokens.row<Token>(nodes[k].second);
    return tokens;
  }
  std::vector<Tensor> read;
  for (const auto& [i, node] : nodes) {
    read.push_back(Tensor::host({1}, DType::i32));
    backend.fetch(trees_[std::size_t(i)].tokens.rows(node, 1), read.back());
  }
  backend.synchronize();
  for (std::size_t k = 0; k < nodes.size(); ++k) tokens[k] = *read[k].data<Token>();
  return tokens;
}

// Adds the nodes of one place and their draws, from row `row` of q.
void DraftBatch::sprout(int i, int parent, int row, const Siblings& siblings, Drawing& drawing) {
  DraftTree& tree = trees_[std::size_t(i)];
  std::vector<Distributions>& of_tree = tree.q.distributions;
  for (int j = 0; j < siblings.children && room(i, parent); ++j) {
    if (j == 0 && of_tree.size() > std::size_t(parent) && of_tree[std::size_t(parent)])
      throw Error(books().who + " drew twice below node " + std::to_string(parent) +
                  " of a tree; all that is drawn there must be drawn at once, from one distribution");
    const int node = add(i, parent, siblings.how);
    TokenDraw draw = requests_[std::size_t(i)].draw(node, depths_[std::size_t(i)][std::size_t(node)], j);
    // Siblings without repeats are one draw, and so are all siblings of a race.
    if (j > 0 && (siblings.how == Drawn::without_replacement || draw.race)) {
      ++drawing.draws.back().siblings;
    } else {
      draw.row = row, draw.to = tree.tokens.row<Token>(node);
      drawing.draws.push_back(draw);
    }
    drawing.nodes.emplace_back(i, node);
    drawing.at.push_back(std::size_t(row) * std::size_t(siblings.children) + std::size_t(j));
    if (j > 0) continue;
    of_tree.resize(std::max(of_tree.size(), std::size_t(parent) + 1));
    of_tree[std::size_t(parent)] = drawing.q.slice(row, 1);
  }
}

DraftBatch::Grown DraftBatch::draw_below(const Places& places, const Tensor& logits, const Siblings& siblings) {
  expect_places(places);
  expect_logits(logits, places.requests.size(), siblings.how == Drawn::chain ? "requests" : "places");
  if (siblings.children < 1 || siblings.children >= kMaxNodes)
    throw Error(books().who + " asked for " + std::to_string(siblings.children) + " siblings; ask for 1 to " +
                std::to_string(kMaxNodes - 1));
  const std::size_t count = places.requests.size();
  std::vector<DistributionAfter> rows;
  bool adjusted = false;
  for (std::size_t k = 0; k < count; ++k) {
    const Sequence& sequence = *requests_[std::size_t(places.requests[k])].sequence;
    adjusted = adjusted || is_adjusted(sequence.sampling);
    rows.push_back({&sequence, &trees_[std::size_t(places.requests[k])], std::max(0, places.parents[k]),
                    draft_warp(sequence, siblings.temperature)});
  }
  const std::size_t all = count * std::size_t(siblings.children);
  Grown grown{std::vector<int>(all, -1), std::vector<Token>(all, -1)};
  if (count == 0) return grown;
  Drawing drawing{.q = distributions(logits, rows, adjusted)};
  for (std::size_t k = 0; k < count; ++k) sprout(places.requests[k], places.parents[k], int(k), siblings, drawing);
  if (drawing.draws.empty()) return grown;
  books().backend.draw(drawing.q, drawing.draws, {});
  const std::vector<Token> tokens = read(drawing.nodes);
  for (std::size_t k = 0; k < tokens.size(); ++k) {
    grown.nodes[drawing.at[k]] = drawing.nodes[k].second;
    grown.tokens[drawing.at[k]] = tokens[k];
  }
  return grown;
}

std::vector<DraftTree> DraftBatch::take() {
  std::vector<DraftTree> trees = std::move(trees_);
  close();
  return trees;
}

void DraftBatch::close() {
  books_ = nullptr;
  requests_ = {};
  trees_.clear();
}

}  // namespace foretoken
