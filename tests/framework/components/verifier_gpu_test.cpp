// Verdicts on the GPU equal the host's, byte for byte: speculative_sampling and coupled on random trees, chains and
// distributions; and a rule that nvcc has not compiled runs on host copies.
#include <gtest/gtest.h>

#include "framework/components/host.h"
#include "framework/components/registry.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/scenario.h"
#include "tests/support/gpu.h"
#include "verifiers/verifiers.h"

namespace foretoken::test {
namespace {

struct Options {
  int vocab, sequences, nodes;
  bool chains = false;
  unsigned seed = 1;
};

// The same trees with the same distributions on the host and on the device.
class Trees {
 public:
  Trees(Backend& host, Backend& device, const Options& o) : host_(host), device_(device), engine_(o.seed), o_(o) {
    p_ = random_tensor({o.sequences * o.nodes, o.vocab}, o.seed, 2);
    for (std::int64_t r = 0; r < p_.dim(0); ++r) warps_.push_back(warp());
    if (o.seed % 4 == 3) p_.row<float>(o.nodes / 2)[o.vocab / 2] = std::numeric_limits<float>::quiet_NaN();
    for (int i = 0; i < o.sequences; ++i) {
      add_tree(i);
      draws_.push_back({o.seed, std::uint64_t(i), 9, 0});
      positions_.push_back(std::uint32_t(20 + i));
    }
  }

  std::vector<Verdict> on_host(Verifier& verifier) {
    return verdicts(host_, verifier, on_host_, host_.distributions(p_, warps_));
  }
  std::vector<Verdict> on_device(Verifier& verifier) {
    return verdicts(device_, verifier, on_device_, device_.distributions(device_.upload(p_), warps_));
  }

 private:
  int below(int n) { return int(engine_() % unsigned(n)); }
  Warp warp() {
    const Warp kinds[] = {{1, 0, 1, 0, true},
                          {0, 0, 1, 0, true},
                          {0.7f, 40, 1, 0, true},
                          {1.3f, 0, 0.9f, 0, true},
                          {1, 0, 1, 0.05f, true}};
    return kinds[o_.seed % 5 == 4 ? below(5) : int(o_.seed % 5)];
  }

  void add_tree(int i) {
    DraftTree h = DraftTree::rooted(host_, below(o_.vocab), o_.nodes - 1),
              d = DraftTree::rooted(device_, *h.known.row<Token>(0), o_.nodes - 1);
    h.q.distributions.resize(std::size_t(o_.nodes)), d.q.distributions.resize(std::size_t(o_.nodes));
    const Tensor drawn = Tensor::host({o_.nodes}, DType::i32);
    for (int n = 1; n < o_.nodes; ++n) {
      const int parent = o_.chains ? n - 1 : below(n);
      const bool certain = below(3) == 0;
      const Drawn how = certain ? Drawn::certain : o_.chains ? Drawn::chain : Drawn::independent;
      const Token token = certain ? guess(i * o_.nodes + parent) : sample(h, d, i, parent, n);
      *drawn.row<Token>(n) = token;
      h.grow(parent, how), d.grow(parent, how);
      *h.known.row<Token>(n) = token;
      if (below(2)) *d.known.row<Token>(n) = token;  // else only the device has the token
    }
    device_.copy(drawn, d.tokens);
    on_host_.push_back(std::move(h)), on_device_.push_back(std::move(d));
  }
  // Absent, any token, or the most probable one.
  Token guess(int row) {
    if (below(6) == 0) return -1;
    const float* l = p_.row<float>(row);
    return below(2) ? below(o_.vocab) : Token(std::max_element(l, l + o_.vocab) - l);
  }
  // Drawn from a distribution near the target's, the same for both trees.
  Token sample(DraftTree& h, DraftTree& d, int i, int parent, int node) {
    Distributions& q = h.q.distributions[std::size_t(parent)];
    if (!q) {
      Tensor logits = random_tensor({1, o_.vocab}, engine_(), 1.0f);
      const float* p = p_.row<float>(i * o_.nodes + parent);
      for (int x = 0; x < o_.vocab; ++x)
        logits.data<float>()[x] = std::isnan(p[x]) ? 0 : p[x] + 0.7f * logits.data<float>()[x];
      const Warp w = warp();
      q = host_.distributions(logits, {&w, 1});
      d.q.distributions[std::size_t(parent)] = device_.distributions(device_.upload(logits), {&w, 1});
    }
    const TokenDraw draw{{o_.seed, std::uint64_t(i), 9, 0}, {Role::draft, std::uint32_t(node), 0}};
    Tensor to = Tensor::host({1}, DType::i32);
    host_.draw(q, {&draw, 1}, to);
    return to.data<Token>()[0];
  }

  std::vector<Verdict> verdicts(Backend& backend, Verifier& verifier, std::span<const DraftTree> trees,
                                const Distributions& p) {
    Staging staging(backend);
    const Trials trials(backend, trees, p, draws_, positions_, staging);
    Tensor to = backend.allocate({o_.sequences, std::int64_t(sizeof(Verdict))}, DType::u8),
           host = Tensor::host(to.shape(), to.dtype());
    verifier.verify(backend, trials, to);
    std::vector<std::uint8_t> warped(std::size_t(o_.sequences), std::uint8_t(o_.seed % 2));
    log_probabilities(backend, trials, to,
                      backend.upload(Tensor::host_copy(std::span<const std::uint8_t>(warped), DType::u8)), {});
    backend.copy(to, host);
    std::vector<Verdict> v(std::size_t(o_.sequences));
    for (int i = 0; i < o_.sequences; ++i)
      v[std::size_t(i)] = *reinterpret_cast<const Verdict*>(host.row<std::uint8_t>(i));
    return v;
  }

  Backend &host_, &device_;
  std::mt19937 engine_;
  Options o_;
  Tensor p_;
  std::vector<Warp> warps_;
  std::vector<DraftTree> on_host_, on_device_;
  std::vector<Draws> draws_;
  std::vector<std::uint32_t> positions_;
};

struct Counts {
  long accepted = 0, rejected = 0;
};

void expect_same(const std::vector<Verdict>& a, const std::vector<Verdict>& b, const std::string& what,
                 Counts& counts) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].next, b[i].next) << what << ", sequence " << i << ", lengths " << a[i].length << " / "
                                    << b[i].length;
    ASSERT_EQ(a[i].length, b[i].length) << what << ", sequence " << i;
    if (a[i].next < 0) continue;
    const std::size_t n = std::size_t(a[i].length);
    EXPECT_EQ(std::memcmp(a[i].path, b[i].path, n * sizeof a[i].path[0]), 0) << what << ", sequence " << i;
    EXPECT_EQ(std::memcmp(a[i].tokens, b[i].tokens, (n + 1) * sizeof(Token)), 0) << what << ", sequence " << i;
    EXPECT_EQ(std::memcmp(a[i].logprobs, b[i].logprobs, (n + 1) * sizeof(float)), 0) << what << ", sequence " << i;
    counts.accepted += a[i].length, counts.rejected += a[i].length == 0;
  }
}

void compare(Verifier& verifier, const std::string& name, const std::vector<Options>& all) {
  const auto device = test::make_gpu({});
  ReferenceBackend host;
  Counts counts;
  for (const Options& o : all) {
    Trees trees(host, *device, o);
    expect_same(trees.on_device(verifier), trees.on_host(verifier),
                name + ", vocab " + std::to_string(o.vocab) + ", seed " + std::to_string(o.seed), counts);
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
  }
  EXPECT_GT(counts.accepted, 0);
  EXPECT_GT(counts.rejected, 0);
}

std::vector<Options> scenarios() {
  std::vector<Options> all;
  for (unsigned seed = 1; seed <= 40; ++seed) all.push_back({int(1 + seed * 97 % 1400), 6, 9, seed % 2 == 0, seed});
  for (unsigned seed = 41; seed <= 46; ++seed) all.push_back({32000, 4, 6, seed % 2 == 0, seed});
  for (unsigned seed = 51; seed <= 55; ++seed) all.push_back({128256, 3, 5, seed % 2 == 0, seed});
  all.push_back({300, 150, 40, false, 64});  // many sequences, large trees
  return all;
}

TEST(VerdictsOnTheGpu, equal_those_of_the_host) {
  ReferenceBackend backend;
  const ModelInfo info;
  PagePool pool(backend, 4096, 1);
  Host host(backend, pool, info, {}, false);
  compare(*speculative_sampling().make({}, host), "speculative_sampling", scenarios());
  compare(*coupled().make({}, host), "coupled", scenarios());
}

// A rule of a plugin, which g++ compiles: token matching.
struct Matching {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      const Token next = lane.draw(t.p(node), {Role::bonus, std::uint32_t(node), 0});
      const int match = t.match(node, next);
      if (match < 0) {
        v.finish(next);
        return v;
      }
      v.follow(node = match, next);
    }
  }
};

TEST(VerdictsOnTheGpu, of_a_rule_that_nvcc_has_not_compiled_come_from_the_host) {
  RuleVerifier<Matching> matching;
  std::vector<Options> all;
  for (unsigned seed = 1; seed <= 12; ++seed) all.push_back({int(1 + seed * 97 % 1400), 6, 9, seed % 2 == 0, seed});
  compare(matching, "matching", all);
}

TEST(VerdictsOnTheGpu, of_such_a_rule_cost_one_more_wait) {
  const auto device = test::make_gpu({});
  const Distributions p = device->distributions(device->upload(random_tensor({2, 50}, 1)), std::vector<Warp>(2));
  std::vector<DraftTree> trees{DraftTree::rooted(*device, 3, 0), DraftTree::rooted(*device, 4, 0)};
  const std::vector<Draws> draws(2);
  const std::vector<std::uint32_t> positions{1, 2};
  Staging staging(*device);
  const Trials trials(*device, trees, p, draws, positions, staging);
  const std::uint64_t before = device->waits();
  RuleVerifier<Matching>().verify(*device, trials, device->allocate({2, std::int64_t(sizeof(Verdict))}, DType::u8));
  EXPECT_EQ(device->waits(), before + 1);
}

// A q whose mass was halved adds up to 2; a node without q, and one whose q is not finite, count as 1.
TEST(ProposalsOnTheGpu, add_up_to_the_mass_of_q) {
  const auto device = test::make_gpu({});
  const Tensor logits = random_tensor({4, 1000}, 2);
  logits.row<float>(3)[7] = std::numeric_limits<float>::quiet_NaN();
  const Distributions p = device->distributions(device->upload(logits), std::vector<Warp>(4, Warp{1}));
  const Tensor rows = Tensor::host(p.rows.shape(), DType::u8);
  device->copy(p.rows, rows);
  reinterpret_cast<DistributionRow*>(rows.row<std::uint8_t>(1))->mass *= 0.5;
  const Distributions q{p.logits, device->upload(rows)};
  std::vector<DraftTree> trees{DraftTree::rooted(*device, 3, 0), DraftTree::rooted(*device, 4, 2)};
  for (int n = 0; n < 2; ++n) trees[1].guess(n, 5);
  trees[1].q.distributions = {q.slice(0, 1), q.slice(1, 1), q.slice(3, 1)};
  const std::vector<Draws> draws(2);
  const std::vector<std::uint32_t> positions{1, 2};
  Staging staging(*device);
  const Trials trials(*device, trees, p, draws, positions, staging);
  const Tensor sums = device->allocate({4}, DType::f32), read = Tensor::host({4}, DType::f32);
  proposal_sums(*device, trials, sums);
  device->copy(sums, read);
  EXPECT_EQ(std::vector<float>(read.values<float>().begin(), read.values<float>().end()),
            (std::vector<float>{1, 1, 2, 1}));
}

}  // namespace
}  // namespace foretoken::test
