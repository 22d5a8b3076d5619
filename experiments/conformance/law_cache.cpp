#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/table_model.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

// Rows [0, n) of every layer of a sequence's table, keys and values with their scales, as bytes.
std::string rows_of(Backend& backend, const KvCache& cache, SequenceId id, int n) {
  std::string all;
  const Tensor pool = cache.layers().front().pool, page = Tensor::host({1, pool.dim(1)}, DType::u8);
  const int page_rows = cache.layers().front().page_rows;
  for (int begin = 0; begin < n; begin += page_rows) {
    backend.copy(pool.rows(cache.held(id).table[std::size_t(begin / page_rows)], 1), page);
    for (const KvLayer& kv : cache.layers())
      for (const KvPlane& plane : KvPlanes(kv))
        for (int h = 0; h < kv.kv_heads; ++h)
          all.append(page.data<char>() + plane.begin + h * page_rows * plane.bytes,
                     std::size_t(std::min(page_rows, n - begin) * plane.bytes));
  }
  return all;
}

// The states that a drafter says that it reads, in its order, and those of each that its options name: an engine does
// not say whose a cache is.
using Read = std::vector<std::vector<Tap>>;
void add_read(const Registries& registries, const nlohmann::json& config, const ModelInfo& target, Read& all) {
  const Entry<Drafter>& entry = registries.drafters.find(config);
  all.push_back(entry.traits(config, target).hidden);
  for (const Option& o : entry.options) {
    if (o.type == "drafter" && !config.at(o.name).is_null()) add_read(registries, config.at(o.name), target, all);
    if (o.type == "drafters")
      for (const nlohmann::json& inner : config.at(o.name)) add_read(registries, inner, target, all);
  }
}

// What a head is fed besides tokens: states of the target.
struct StatesFed {
  std::vector<std::uint64_t> addresses;
  RowInputs form;
};
StatesFed states_fed(const HiddenStates& states, std::span<const Tap> taps, int n) {
  StatesFed fed{{}, states.form(taps)};
  for (int at = 0; at < n; ++at) states.append(at, taps, fed.addresses);
  return fed;
}

// Feeds the first n tokens at once to an empty cache.
std::string fresh_rows(Backend& backend, const CachedModel& like, const StatesFed& fed, const Sequence& sequence,
                       int n) {
  const std::int64_t page_bytes = like.cache().layers().front().pool.dim(1);
  PagePool pool(backend, page_bytes, like.cache().pages_for(n));
  const bool bounds = like.cache().layers().front().bounds > 0;
  CachedModel fresh(backend, like.model(), pool, false, {like.taps().begin(), like.taps().end()}, bounds);
  (void)fresh.unseen(sequence);
  (void)fresh.reserve(sequence, n);
  const Segment whole{&sequence, n, nullptr, 0, fed.addresses};
  (void)fresh.run({&whole, 1}, fed.form);
  const std::string rows = rows_of(backend, fresh.cache(), sequence.id, n);
  fresh.forget(sequence);
  return rows;
}

// Whether a fresh prefill makes these rows, fed with some of `read`.
bool made_by_a_head(Backend& backend, Engine& engine, const CachedModel& cached, const Sequence& sequence, int n,
                    const std::string& rows, const Read& read) {
  return std::ranges::any_of(read, [&](const std::vector<Tap>& taps) {
    try {
      return rows == fresh_rows(backend, cached, states_fed(engine.target().hidden(sequence), taps, n), sequence, n);
    } catch (const Error&) {
      if (read.size() == 1) throw;
      return false;  // another's, of another width
    }
  });
}

void check_cache(Backend& backend, Engine& engine, CachedModel& cached, const Read& read, const Sequence& sequence,
                 Finding& f) {
  KvCache& cache = cached.cache();
  if (cache.confirmed(sequence.id) == 0) return;  // preempted, or never fed
  (void)cached.unseen(sequence);
  const int held = cache.confirmed(sequence.id);
  cache.compact();
  const std::string prefix = cached.info().name + ", sequence " + std::to_string(sequence.id) + " of " +
                             std::to_string(sequence.length()) + " tokens: ";
  const int pages = int(cache.held(sequence.id).table.size());
  if (pages != cache.pages_for(held))
    f.fail(prefix + std::to_string(pages) + " pages hold " + std::to_string(held) + " rows");
  const std::string rows = rows_of(backend, cache, sequence.id, held);
  const bool same = cached.model()->reads_states() ? made_by_a_head(backend, engine, cached, sequence, held, rows, read)
                                                   : rows == fresh_rows(backend, cached, {}, sequence, held);
  if (!same) f.fail(prefix + "keys and values differ from a fresh prefill's");
  ++f.cases;
}

}  // namespace

Finding cache(const Run& run) {
  const Subject& subject = run.subject;
  Finding f{.what = subject.text()};
  Read read;
  add_read(subject.registries, subject.registries.drafters.complete(subject.configs.drafter), run.models.target->info(),
           read);
  const auto check = [&](Engine& engine, const StepReport&, std::span<const Sequence* const> running) {
    for (const Sequence* s : running) {
      check_cache(run.backend, engine, engine.target(), read, *s, f);
      for (const auto& c : engine.host().caches())  // what a view reads is the target's
        if (c->cache().keeps()) check_cache(run.backend, engine, *c, read, *s, f);
    }
  };
  const RunOutcome outcome = run_scenario(run, check);
  if (outcome.pages_left != 0) f.fail(std::to_string(outcome.pages_left) + " pages are still held at the end");
  f.add(outcome);
  return f;
}

// acceptance.
namespace {

struct Drafted {
  Tokens context;
  int prompt = 0;  // so many of them
  DraftTree tree;
};

// The probability that a token drawn from q is accepted, given p, by the verifier's formula.
double agreement(const std::vector<double>& p, const Distribution& q, const Soundness& how) {
  double sum = 0;
  for (Token x = 0; x < q.vocab; ++x) {
    const double px = p[std::size_t(x)], qx = q(x);
    if (!how.race) sum += how.acceptance == Acceptance::product ? px * qx : std::min(px, qx);
    if (!how.race || px == 0 || qx == 0) continue;
    double rivals = 0;
    for (Token y = 0; y < q.vocab; ++y) rivals += std::max(p[std::size_t(y)] / px, q(y) / qx);
    sum += 1 / rivals;
  }
  return sum;
}

bool certain(const DraftTree& tree, int n) { return drawn_of(tree, n) == Drawn::certain; }

// (r - q)+ over its sum; r unchanged if nothing is left.
std::vector<double> residual(const std::vector<double>& r, const std::vector<double>& q) {
  std::vector<double> rest;
  double mass = 0;
  for (std::size_t x = 0; x < r.size(); ++x) rest.push_back(std::max(0.0, r[x] - q[x])), mass += rest.back();
  for (double& v : rest) v /= mass;
  return mass > 0 ? rest : r;
}

// Recursive rejection of siblings with these tokens: each against what its predecessors left of p.
double recursive(const DraftTree& tree, const std::vector<int>& below, const std::vector<double>& p,
                 const std::vector<double>& q) {
  std::vector<double> r = p, rest = q;
  double none = 1;  // the probability that none was accepted so far
  for (const int n : below) {
    const std::size_t x = std::size_t(token_of(tree, n));
    const Drawn drawn = drawn_of(tree, n);
    std::vector<double> from = drawn == Drawn::without_replacement ? rest : q;
    if (drawn == Drawn::certain) from.assign(r.size(), 0), from[x] = 1;
    none *= 1 - std::min(1.0, r[x] / from[x]);
    r = residual(r, from);
    if (drawn != Drawn::without_replacement) continue;
    rest[x] = 0;
    double mass = 0;
    for (const double v : rest) mass += v;
    for (double& v : rest) v = mass > 0 ? v / mass : 0;
  }
  return 1 - none;
}

// K-SEQ of k i.i.d. draws from q, whatever their tokens.
double k_seq(const std::vector<double>& p, const std::vector<double>& q, int k) {
  const auto accepted = [&](double rho) {
    double beta = 0;
    for (std::size_t x = 0; x < p.size(); ++x) beta += std::min(q[x], p[x] / rho);
    return std::pair{beta, 1 - std::pow(1 - beta, k)};
  };
  double low = 1, high = k;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    const auto [beta, any] = accepted(middle);
    (any <= middle * beta ? high : low) = middle;
  }
  return accepted(high).second;
}

// K-SEQ of a family with guesses: these are tried first, the draws against what they left of p.
double k_seq(const DraftTree& tree, const std::vector<int>& below, const std::vector<double>& p,
             const std::vector<double>& q) {
  std::vector<double> r = p;
  double none = 1;
  int drawn = 0;
  for (const int n : below) {
    drawn += !certain(tree, n);
    if (!certain(tree, n)) continue;
    std::vector<double> guess(r.size(), 0);
    guess[std::size_t(token_of(tree, n))] = 1;
    none *= 1 - r[std::size_t(token_of(tree, n))];
    r = residual(r, guess);
  }
  return 1 - none * (1 - k_seq(r, q, drawn));
}

// The probability that one of the children of `node` is accepted, by the verifier's formula: of one drawn child over
// its draws, of siblings given their tokens, of K-SEQ's over their draws. Empty if there is no formula.
std::optional<double> expected(const DraftTree& tree, int node, const std::vector<int>& below,
                               const std::vector<double>& p, const Soundness& how) {
  const auto guess = [&](int n) { return certain(tree, n); };
  if (below.size() == 1 && !guess(below[0])) return agreement(p, tree.q.distributions[std::size_t(node)][0], how);
  if (how.acceptance == Acceptance::product || std::ranges::all_of(below, guess)) {
    std::set<Token> tokens;
    for (const int n : below) tokens.insert(token_of(tree, n));
    double sum = 0;
    for (const Token x : tokens) sum += p[std::size_t(x)];
    return std::min(sum, 1.0);
  }
  if (how.race) return std::nullopt;
  if (how.acceptance == Acceptance::k_seq) return k_seq(tree, below, p, proposed(tree, node));
  if (how.acceptance == Acceptance::overlap) return recursive(tree, below, p, proposed(tree, node));
  return std::nullopt;
}

struct Tally {
  double expected = 0, variance = 0;
  long tested = 0, accepted = 0;
  void add(double probability, bool is_accepted) {
    expected += probability, variance += probability * (1 - probability), accepted += is_accepted, ++tested;
  }
};

// Adds every level of a drafted chain, judged by the joint weight of its tokens. False if it is no chain.
bool tally_joint(const Drafted& d, const SequenceReport& r, const TableModel& target, const Sampling& sampling,
                 std::map<int, Tally>& tallies) {
  Tokens context = d.context;
  double weight = 1;
  for (int level = 1, node = 0;; ++level) {
    const std::vector<int> below = children(d.tree, node);
    if (below.empty()) return true;
    if (below.size() > 1) return false;
    const Token x = token_of(d.tree, below[0]);
    const double p = target_distribution(target, context, d.prompt, sampling)[std::size_t(x)];
    weight = std::min(1.0, weight * p / (certain(d.tree, below[0]) ? 1 : proposed(d.tree, node)[std::size_t(x)]));
    tallies[level].add(weight, level <= r.accepted);
    context.push_back(x);
    node = below[0];
  }
}

// Adds every tested level: down the accepted path, up to the first rejection. False if there is no formula.
bool tally(const Drafted& d, const SequenceReport& r, const TableModel& target, const Sampling& sampling,
           const Soundness& how, std::map<int, Tally>& tallies) {
  if (how.acceptance == Acceptance::joint) return tally_joint(d, r, target, sampling, tallies);
  Tokens context = d.context;
  for (int level = 1, node = 0;; ++level) {
    const std::vector<int> below = children(d.tree, node);
    // Of two siblings with one token the report may mean the one that has no children.
    if (below.empty() || level > r.tested()) return true;
    const std::optional<double> e =
        expected(d.tree, node, below, target_distribution(target, context, d.prompt, sampling), how);
    if (!e) return false;
    tallies[level].add(*e, level <= r.accepted);
    if (level > r.accepted) return true;
    context.push_back(r.emitted.at(std::size_t(level) - 1));
    const auto holds = [&](int n) { return token_of(d.tree, n) == context.back(); };
    const auto accepted = std::ranges::find_if(below, holds);
    if (accepted == below.end())
      return true;  // the verifier emitted another token than the node's: other laws detect that
    node = *accepted;
  }
}

}  // namespace

Finding acceptance(const Run& run) {
  Finding f{.what = run.subject.text()};
  const Soundness how = soundness_of(run.subject.registries, run.subject.configs.verifier);
  const auto& target = dynamic_cast<const TableModel&>(*run.models.target);
  std::map<SequenceId, Drafted> last;
  std::map<int, Tally> tallies;
  const auto record = [&](Host&, std::span<const DraftRequest> drafted, std::span<const DraftTree> trees) {
    for (std::size_t i = 0; i < trees.size(); ++i)
      last[drafted[i].sequence->id] = {drafted[i].sequence->tokens, drafted[i].sequence->prompt_length, trees[i]};
  };
  const auto judge = [&](Engine&, const StepReport& report, std::span<const Sequence* const>) {
    for (const SequenceReport& r : report.sequences)
      if (r.judged && f.holds && !tally(last.at(r.id), r, target, run.scenario.sampling, how, tallies))
        f.fail("there is no formula for the acceptance of the children that the drafter proposed");
  };
  run_scenario(run.with(watched(run.subject, record)), judge);
  for (const auto& [position, t] : tallies) {
    const double z = t.variance > 1e-9 ? (double(t.accepted) - t.expected) / std::sqrt(t.variance)
                     : std::abs(double(t.accepted) - t.expected) < 1e-6 ? 0
                                                                        : 1e9;
    f.what += "; position " + std::to_string(position) + ": " + std::to_string(t.accepted) + " of " +
              std::to_string(t.tested) + ", expected " + std::to_string(t.expected) + ", z " + std::to_string(z);
    f.measure = std::max(f.measure, std::abs(z));
    f.cases += t.tested, f.accepted += t.accepted, f.rejected += t.tested - t.accepted;
    constexpr double kMost = 5;
    if (std::abs(z) > kMost)
      f.fail("at level " + std::to_string(position) + " of the drafts " + std::to_string(t.accepted) + " of " +
             std::to_string(t.tested) + " were accepted, where p, q and the verifier's formula imply " +
             text_of(t.expected) + " (a rate of " + text_of(double(t.accepted) / double(t.tested)) + " instead of " +
             text_of(t.expected / double(t.tested)) + ", z = " + text_of(z) + ")");
  }
  return f;
}

}  // namespace foretoken::conformance
