#include "experiments/trace/path_reach.h"

#include <algorithm>
#include <set>

#include "experiments/conformance/enumerator.h"
#include "experiments/session/run_document.h"
#include "kernels/error.h"
#include "kernels/host_backend.h"

namespace foretoken {
namespace {

// Follows the outcomes of a rule's decisions. Of a drawn token only matters which token of the tree it is, if any, so a
// draw has few outcomes whatever the vocabulary.
class Decisions final : public conformance::Enumerator {
 public:
  explicit Decisions(std::set<Token> tokens) : tokens_(tokens.begin(), tokens.end()) {}

  Token draw(int vocab, const std::function<double(Token)>& law, const Draws& draws, DrawName name) override {
    std::vector<double> mass;
    for (const Token x : tokens_) mass.push_back(law(x));
    double others = 0;
    Token other = -1;
    auto next = tokens_.begin();
    for (Token x = 0; x < vocab; ++x) {
      if (next != tokens_.end() && *next == x) {
        ++next;
      } else if (const double p = law(x); p > 0) {
        others += p, other = x;
      }
    }
    mass.push_back(others);
    const Token taken = Enumerator::draw(int(mass.size()), [&](Token i) { return mass[std::size_t(i)]; }, draws, name);
    return std::size_t(taken) < tokens_.size() ? tokens_[std::size_t(taken)] : other;
  }

 private:
  std::vector<Token> tokens_;  // of the tree, ascending
};

// A host that asks `decisions` as long as this lives.
class Asking {
 public:
  Asking(HostBackend& host, Decisions& decisions) : host_(host) { host_.set_chance(&decisions); }
  ~Asking() { host_.set_chance(nullptr); }
  Asking(const Asking&) = delete;

 private:
  HostBackend& host_;
};

std::vector<int> depths_of(const DraftTree& tree) {
  std::vector<int> depth(std::size_t(tree.nodes), 0);
  for (std::size_t n = 1; n < depth.size(); ++n)
    depth[n] = depth[std::size_t(tree.parents.data<std::int32_t>()[n])] + 1;
  return depth;
}

// The tree with its nodes below `levels` absent.
DraftTree cut(const DraftTree& tree, const std::vector<int>& depth, int levels) {
  DraftTree shorter = tree;
  shorter.known = shorter.tokens = Tensor::host({tree.nodes}, DType::i32);
  for (std::size_t n = 0; n < depth.size(); ++n)
    shorter.known.data<Token>()[n] = depth[n] > levels ? -1 : tree.known.data<Token>()[n];
  return shorter;
}

// One trial in host memory.
class Judged {
 public:
  Judged(HostBackend& host, const Trials& all, std::size_t i, int row)
      : host_(host),
        staging_(host),
        tree_(all.trees()[i]),
        p_(all.p().slice(row, tree_.nodes)),
        raw_(all.raw() ? all.raw().slice(row, tree_.nodes) : Distributions()),
        draws_(all.named()[i]),
        position_(all.positions()[i]) {}

  Reach reach(Verifier& verifier) {
    const std::vector<int> depth = depths_of(tree_);
    Reach reach;
    for (int levels = 1; levels <= *std::ranges::max_element(depth); ++levels)
      reach.push_back(reach_of(verifier, cut(tree_, depth, levels), levels));
    return reach;
  }

 private:
  std::vector<double> reach_of(Verifier& verifier, const DraftTree& tree, int levels) {
    const Token* const tokens = tree.known.data<Token>();
    std::set<Token> drafted(tokens + 1, tokens + tree.nodes);
    drafted.erase(-1);
    Decisions decisions(std::move(drafted));
    std::vector<double> reach(std::size_t(levels), 0);
    const Asking asking(host_, decisions);
    do {
      const Tensor verdict = host_.allocate({1, std::int64_t(sizeof(Verdict))}, DType::u8);
      const Trials one(host_, {&tree, 1}, p_, {&draws_, 1}, {&position_, 1}, staging_, raw_);
      verifier.verify(host_, one, verdict);
      const int length = verdict.data<Verdict>()->length;
      if (length < 0 || length > levels) throw Error("a verifier accepted more of a tree than its levels");
      for (int i = 0; i < length; ++i) reach[std::size_t(i)] += decisions.weight();
    } while (decisions.next());
    return reach;
  }

  HostBackend& host_;
  Staging staging_;
  DraftTree tree_;
  Distributions p_, raw_;
  Draws draws_;
  std::uint32_t position_;
};

std::vector<Drawn> drawn_in(std::span<const DraftTree> trees) {
  std::vector<Drawn> all;
  for (const DraftTree& tree : trees)
    for (int n = 1; n < tree.nodes; ++n)
      if (!tree.aside(n)) all.push_back(Drawn(*tree.q.drawn.row<std::uint8_t>(n)));
  return all;
}

}  // namespace

std::vector<Reach> PathReach::of(Backend& backend, const Trials& trials, const Judge& judge, const std::string& name) {
  expect_followed(judge.soundness, name, drawn_in(trials.trees()));
  std::vector<Reach> all;
  const Tensor unused = backend.allocate({std::int64_t(trials.count()), std::int64_t(sizeof(Verdict))}, DType::u8);
  copies_.verify(backend, trials, unused, [&](Backend& host, const Trials& local, Tensor) {
    int row = 0;
    for (std::size_t i = 0; i < local.trees().size(); ++i) {
      all.push_back(Judged(dynamic_cast<HostBackend&>(host), local, i, row).reach(*judge.verifier));
      row += local.trees()[i].nodes;
    }
  });
  return all;
}

}  // namespace foretoken
