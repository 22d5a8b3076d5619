// What every drafter proposes after histories that are written by hand, and after random ones by a second, slow account
// of the same rule.
#include <random>
#include <set>

#include "tests/oracle/scene.h"

namespace foretoken::oracle {
namespace {

using Path = std::vector<Token>;

// A tree in plain numbers. Nodes are named by the tokens that lead to them.
struct Proposed {
  int nodes = 0, depth = 0;
  std::vector<Path> paths{};    // below the root, in the order of the nodes
  std::vector<Drawn> drawn{};   // of each
  std::map<Path, Numbers> q{};  // the distribution that the children of a node were drawn from
  std::set<Path> set() const { return {paths.begin(), paths.end()}; }
};

struct Proposals : ::testing::Test {
  std::unique_ptr<Backend> backend = make_reference_backend();
  Registries registries = conformance::all_registries();
  Sampling sampling{};

  // The tree for this history, of which the last `generated` tokens are output.
  Proposed propose(const json& drafter, const Tokens& history, Budget budget, std::shared_ptr<Model> model = {},
                   int generated = 0) {
    if (!model) model = std::make_shared<HandModel>(followed_by(Tokens(16)));
    PagePool pool(*backend, model->info().kv.page_bytes(2), 512);
    Host host(*backend, pool, model->info(), [&](const ModelChoice&) { return model; }, false);
    const auto made = registries.drafters.make(drafter, host);
    Sequence s;
    s.id = 1, s.tokens = history, s.prompt_length = int(history.size()) - generated, s.sampling = sampling;
    s.tally = Tally(sampling.penalties(), sampling.logit_bias, std::span(history).first(std::size_t(s.prompt_length)));
    for (const Token t : output_of(s)) s.tally.add(t);
    const DraftRequest request{&s, budget, 512, {7, 3, std::uint32_t(s.length()), 0}, false, {}};
    const std::vector<DraftTree> trees = made->draft({&request, 1});
    backend->synchronize();
    Proposed p = read(trees.at(0), model->info().vocab);
    made->forget(s);
    return p;
  }
  static Proposed read(const DraftTree& tree, int vocab) {
    Proposed p{.nodes = tree.nodes};
    std::vector<Path> all{{}};
    for (int n = 1; n < tree.nodes; ++n) {
      Path& path = all.emplace_back(all.at(std::size_t(*tree.parents.row<std::int32_t>(n))));
      path.push_back(tree.drawn_at(n) ? *tree.drawn_at(n) : *tree.known.row<Token>(n));
      p.paths.push_back(path), p.depth = std::max(p.depth, int(path.size()));
      p.drawn.push_back(Drawn(*tree.q.drawn.row<std::uint8_t>(n)));
    }
    for (std::size_t n = 0; n < tree.q.distributions.size(); ++n) {
      if (!tree.q.distributions[n]) continue;
      Numbers& q = p.q[all.at(n)] = Numbers(std::size_t(vocab));  // one for siblings of one token
      for (Token x = 0; x < vocab; ++x) q[std::size_t(x)] = tree.q.distributions[n][0](x);
    }
    return p;
  }
  Path chain(const json& drafter, const Tokens& history, int length) {
    const Proposed p = propose(drafter, history, {length + 1, length});
    EXPECT_EQ(p.depth, p.nodes - 1) << "it is no chain";
    for (const Drawn d : p.drawn) EXPECT_EQ(d, Drawn::certain);
    return p.paths.empty() ? Path() : p.paths.back();
  }
};

const json kNgram = {{"name", "ngram"}};

TEST_F(Proposals, ngram_guesses_what_followed_the_latest_earlier_occurrence) {
  EXPECT_EQ(chain(kNgram, {9, 1, 2, 3, 4, 5, 8, 1, 2}, 3), (Path{3, 4, 5}));
  EXPECT_EQ(chain(kNgram, {1, 2, 3, 4, 5, 8, 1, 2}, 3), (Path{3, 4, 5})) << "the occurrence is at position 0";
  EXPECT_EQ(chain(kNgram, {1, 2, 3, 1, 2, 4, 1, 2}, 2), (Path{4, 1})) << "the latest of two";
  EXPECT_EQ(chain(kNgram, {1, 2, 3, 4, 5, 8, 1, 2}, 1), (Path{3}));
  EXPECT_EQ(chain(kNgram, {1, 2, 3, 4, 5, 8, 1, 2}, 64), (Path{3, 4, 5, 8, 1, 2})) << "up to the end";
  EXPECT_EQ(chain(kNgram, {1, 2, 3, 4, 5, 8, 1, 2}, 0), Path());
}

TEST_F(Proposals, ngram_prefers_the_longest_match) {
  EXPECT_EQ(chain(kNgram, {1, 2, 3, 7, 5, 2, 3, 8, 1, 2, 3}, 1), (Path{7})) << "three tokens before the later two";
  EXPECT_EQ(chain(kNgram, {4, 2, 3, 7, 5, 2, 3, 8, 1, 2, 3}, 1), (Path{8}));
  EXPECT_EQ(chain({{"name", "ngram"}, {"longest", 2}}, {1, 2, 3, 7, 5, 2, 3, 8, 1, 2, 3}, 1), (Path{8}));
  EXPECT_EQ(chain({{"name", "ngram"}, {"longest", 4}}, {9, 1, 2, 3, 6, 0, 1, 2, 3, 8, 9, 1, 2, 3}, 1), (Path{6}));
}

TEST_F(Proposals, ngram_tries_no_match_below_the_shortest) {
  EXPECT_EQ(chain(kNgram, {1, 5, 1}, 3), Path());
  EXPECT_EQ(chain({{"name", "ngram"}, {"shortest", 1}}, {1, 5, 1}, 3), (Path{5, 1}));
  EXPECT_EQ(chain({{"name", "ngram"}, {"shortest", 1}}, {1}, 3), Path());
  EXPECT_EQ(chain({{"name", "ngram"}, {"shortest", 1}}, {1, 1}, 3), (Path{1}));
  EXPECT_EQ(chain({{"name", "ngram"}, {"shortest", 3}}, {1, 2, 5, 1, 2}, 3), Path());
  EXPECT_EQ(chain({{"name", "ngram"}, {"shortest", 3}}, {1, 2, 3, 5, 1, 2, 3}, 2), (Path{5, 1}));
}

// The occurrence may overlap the end: of 1 1 1 the last two tokens occur at position 0.
TEST_F(Proposals, ngram_may_match_what_overlaps_the_end) {
  EXPECT_EQ(chain(kNgram, {1, 1, 1}, 4), (Path{1}));
  EXPECT_EQ(chain(kNgram, {5, 1, 2, 1, 2, 1}, 4), (Path{2, 1}));
}

// Every start is tried for every length, in the order that the option table states.
Path looked_up(const Tokens& history, std::size_t longest, std::size_t shortest, std::size_t most) {
  for (std::size_t n = longest; n >= shortest; --n) {
    Path best;
    for (std::size_t at = 0; at + n < history.size(); ++at) {  // the last one that matches is the latest
      bool same = true;
      for (std::size_t k = 0; k < n; ++k) same &= history[at + k] == history[history.size() - n + k];
      if (!same) continue;
      best.clear();
      for (std::size_t k = at + n; k < history.size() && best.size() < most; ++k) best.push_back(history[k]);
    }
    if (!best.empty()) return best;
  }
  return {};
}

TEST_F(Proposals, ngram_on_random_histories) {
  std::mt19937 random(3);
  int found = 0;
  for (int i = 0; i < 600; ++i) {
    Tokens history(1 + random() % 20);
    for (Token& t : history) t = Token(random() % 3);
    const std::size_t shortest = 1 + random() % 3, longest = shortest + random() % 4, most = random() % 6;
    const Path want = most == 0 ? Path() : looked_up(history, longest, shortest, most);
    ASSERT_EQ(chain({{"name", "ngram"}, {"longest", longest}, {"shortest", shortest}}, history, int(most)), want) << i;
    found += !want.empty();
  }
  EXPECT_GT(found, 200);
}

TEST_F(Proposals, none_proposes_nothing) { EXPECT_EQ(propose({{"name", "none"}}, {1, 2, 1, 2}, {16, 4}).nodes, 1); }

// Models of ten tokens.
const Tokens kNext{3, 4, 0, 5, 7, 1, 2, 9, 6, 8};
std::shared_ptr<HandModel> hand(double step) { return std::make_shared<HandModel>(followed_by(kNext, step)); }

void expect_law(const Numbers& have, const Numbers& want) {
  ASSERT_EQ(have.size(), want.size());
  for (std::size_t x = 0; x < want.size(); ++x) EXPECT_NEAR(have[x], want[x], 1e-6) << "token " << x;
}

TEST_F(Proposals, draft_model_is_greedy_at_temperature_0) {
  const Proposed p = propose({{"name", "draft_model"}, {"model", "hand"}}, {2, 0}, {5, 4}, hand(1));
  EXPECT_EQ(p.paths.back(), (Path{3, 5, 1, 4}));
  EXPECT_EQ(p.drawn, std::vector<Drawn>(4, Drawn::chain));
}

// Its q is the model's own law under the sequence's options, or under a temperature of the draft's own; the other
// options stay the sequence's.
TEST_F(Proposals, draft_model_draws_from_the_law_of_its_temperature) {
  sampling = {.temperature = 1.5f, .top_k = 6, .repetition_penalty = 2, .logit_bias = {{8, 1.5f}, {1, -100}}};
  const auto model = hand(.5);
  for (const json& own : {json(), json(.5), json(0), json(2)}) {
    json config = {{"name", "draft_model"}, {"model", "hand"}};
    if (!own.is_null()) config["temperature"] = own;
    Sampling of = sampling;
    if (!own.is_null()) of.temperature = own.get<float>();
    const Proposed p = propose(config, {2, 3, 3, 0}, {5, 4}, model, 2);
    ASSERT_EQ(p.nodes, 5);
    Path path;
    for (const Token next : p.paths.back()) {
      Tokens output{3, 0};
      output.insert(output.end(), path.begin(), path.end());
      const Numbers want = law(model->logits_after(), {2, 3}, output, of);
      expect_law(p.q.at(path), want);
      EXPECT_GT(want[std::size_t(next)], 0) << "it was drawn from another law";
      path.push_back(next);
    }
  }
}

// The best children of a node by the raw law, adjusted: its own temperature and the cuts do not matter.
void expect_ranked(const Proposed& p, const LogitsAfter& model, const Tokens& history, const Sampling& s,
                   const std::vector<std::vector<int>>& shape) {
  std::set<Path> want;
  std::map<std::vector<int>, Path> path_of{{{}, {}}};
  for (const std::vector<int>& ranks : shape) {
    const std::vector<int> above(ranks.begin(), ranks.end() - 1);
    Path path = path_of.at(above);
    Tokens context = history;
    context.insert(context.end(), path.begin(), path.end());
    Numbers z = adjusted(model(context), history, path, s);
    for (int k = 0; k < ranks.back(); ++k) z[std::size_t(best_of(z))] = kNever;
    path.push_back(best_of(z));
    path_of[ranks] = path, want.insert(path);
  }
  EXPECT_EQ(p.set(), want);
  EXPECT_EQ(p.paths.size(), want.size());
}

TEST_F(Proposals, draft_tree_takes_the_most_probable_children) {
  const auto model = hand(1);
  const json shape = json::parse("[[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]");
  json config = {{"name", "draft_tree"}, {"model", "hand"}, {"shape", shape}};
  sampling.repetition_penalty = 4;
  for (const float temperature : {0.f, 1.f}) {  // at 0 they are certain whatever `draws` says
    sampling.temperature = temperature, sampling.top_k = temperature > 0 ? 1 : 0;
    if (temperature > 0) config["draws"] = "certain";
    const Proposed p = propose(config, {2, 0}, {8, 3}, model);
    expect_ranked(p, model->logits_after(), {2, 0}, sampling, shape.get<std::vector<std::vector<int>>>());
    EXPECT_EQ(p.drawn, std::vector<Drawn>(7, Drawn::certain));
  }
  sampling = {};
  const Proposed two = propose({{"name", "draft_tree"}, {"model", "hand"}, {"shape", {2, 1}}}, {2, 0}, {5, 2}, model);
  EXPECT_EQ(two.set(), (std::set<Path>{{3}, {4}, {3, 5}, {4, 7}}));
}

// The levels come first, then the first nodes in breadth-first order.
TEST_F(Proposals, a_budget_leaves_the_first_nodes_of_a_tree) {
  const auto model = hand(1);
  const json config = {{"name", "draft_tree"}, {"model", "hand"}, {"shape", {2, 2, 1}}};
  const std::vector<std::vector<int>> whole{{0}, {1}, {0, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 0, 0}, {0, 1, 0}};
  for (const auto& [budget, nodes] : std::map<std::pair<int, int>, std::size_t>{
           {{1, 0}, 0}, {{2, 1}, 1}, {{3, 3}, 2}, {{20, 1}, 2}, {{4, 3}, 3}, {{20, 2}, 6}, {{9, 3}, 8}}) {
    const Proposed p = propose(config, {2, 0}, {budget.first, budget.second}, model);
    expect_ranked(p, model->logits_after(), {2, 0}, sampling, {whole.begin(), whole.begin() + std::ptrdiff_t(nodes)});
  }
}

TEST_F(Proposals, draft_tree_draws_from_the_law_of_its_temperature) {
  sampling = {.temperature = 1, .top_p = .9f, .presence_penalty = 1};
  const auto model = hand(.5);
  for (const std::string draws : {"independent", "without_replacement"})
    for (const json& own : {json(), json(2)}) {
      Sampling of = sampling;
      if (!own.is_null()) of.temperature = 2;
      const Proposed p = propose(
          {{"name", "draft_tree"}, {"model", "hand"}, {"shape", {3, 2}}, {"draws", draws}, {"temperature", own}},
          {2, 0}, {16, 2}, model);
      ASSERT_EQ(p.paths.size(), 9u);
      std::set<Path> parents{{}};
      for (const Path& path : p.paths)
        if (path.size() == 1) parents.insert(path);
      if (draws == "without_replacement") {
        EXPECT_EQ(p.set().size(), 9u) << "siblings are repeated";
      }
      for (const Path& parent : parents) expect_law(p.q.at(parent), law(model->logits_after(), {2, 0}, parent, of));
      EXPECT_EQ(std::set<Drawn>(p.drawn.begin(), p.drawn.end()).size(), 1u);
      EXPECT_EQ(name_of(p.drawn[0]), draws);
    }
}

// All nodes to a depth with their probabilities; the best `expand` of each level are expanded, and the best of all that
// were seen are kept.
std::set<Path> most_probable(const LogitsAfter& model, const Tokens& history, const Sampling& s, Budget budget,
                             std::size_t width, std::size_t expand) {
  using Node = std::pair<double, Path>;
  const auto better = [](const Node& a, const Node& b) { return a.first > b.first; };
  std::vector<Node> all, level{{1, {}}};
  for (int depth = 0; depth < budget.depth; ++depth) {
    std::vector<Node> next;
    for (const auto& [joint, path] : level) {
      Tokens context = history;
      context.insert(context.end(), path.begin(), path.end());
      const Numbers p = softmax(adjusted(model(context), history, path, s));
      std::vector<Node> children;
      for (Token x = 0; x < int(p.size()); ++x) {
        children.emplace_back(joint * p[std::size_t(x)], path);
        children.back().second.push_back(x);
      }
      std::stable_sort(children.begin(), children.end(), better);
      children.resize(std::min(width, children.size()));
      next.insert(next.end(), children.begin(), children.end());
    }
    std::stable_sort(next.begin(), next.end(), better);
    all.insert(all.end(), next.begin(), next.end());
    next.resize(std::min(expand, next.size()));
    level = next;
  }
  std::stable_sort(all.begin(), all.end(), better);
  std::set<Path> kept;
  for (const auto& [joint, path] : all)
    if (int(kept.size()) < budget.nodes - 1) kept.insert(path);
  return kept;
}

TEST_F(Proposals, draft_dynamic_keeps_the_most_probable_paths) {
  std::mt19937 random(5);
  for (int i = 0; i < 40; ++i) {
    std::vector<Numbers> rows(7, Numbers(7));
    for (Numbers& row : rows)
      for (double& z : row) z = double(float(random() % 4000) / 1000);
    const auto model = std::make_shared<HandModel>(rows);
    sampling = {.temperature = float(i % 2), .top_k = 1};  // neither matters to its raw law
    if (i % 3 == 0) sampling.presence_penalty = 1;
    const std::size_t width = 1 + random() % 4, expand = 1 + random() % 4;
    const Budget budget{int(2 + random() % 14), int(1 + random() % 4)};
    const json config = {{"name", "draft_dynamic"}, {"model", "hand"}, {"width", width}, {"expand", expand}};
    const Tokens history{1, 4, 4, 2};
    const Proposed p = propose(config, history, budget, model);
    const auto want = most_probable(model->logits_after(), history, sampling, budget, width, expand);
    ASSERT_EQ(p.set(), want) << "case " << i << ": width " << width << ", expand " << expand << ", nodes "
                             << budget.nodes << ", depth " << budget.depth;
    ASSERT_EQ(p.paths.size(), want.size());
  }
}

}  // namespace
}  // namespace foretoken::oracle
