// memory: what a drafter keeps of its sequences changes no proposal.
#include <algorithm>
#include <optional>
#include <set>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/target_states.h"
#include "kernels/host_backend.h"

namespace foretoken::conformance {
namespace {

std::string bytes_of(const Tensor& t) { return {static_cast<const char*>(t.raw()), std::size_t(t.bytes())}; }

// How two trees differ; empty if they are equal.
std::string difference(const DraftTree& a, const DraftTree& b) {
  if (a.nodes != b.nodes) return std::to_string(a.nodes) + " nodes instead of " + std::to_string(b.nodes);
  for (int n = 1; n < a.nodes; ++n) {
    const std::string node = "node " + std::to_string(n);
    if (*a.tokens.row<Token>(n) != *b.tokens.row<Token>(n))
      return node + " is " + std::to_string(*a.tokens.row<Token>(n)) + " instead of " +
             std::to_string(*b.tokens.row<Token>(n));
    if (*a.parents.row<std::int32_t>(n) != *b.parents.row<std::int32_t>(n) ||
        *a.q.drawn.row<std::uint8_t>(n) != *b.q.drawn.row<std::uint8_t>(n))
      return node + " has another parent or was drawn otherwise";
  }
  if (a.q.distributions.size() != b.q.distributions.size()) return "another number of distributions";
  for (std::size_t n = 0; n < a.q.distributions.size(); ++n) {
    if (bool(a.q.distributions[n]) != bool(b.q.distributions[n])) return "a distribution is missing";
    if (a.q.distributions[n] && (bytes_of(a.q.distributions[n].logits) != bytes_of(b.q.distributions[n].logits) ||
                                 bytes_of(a.q.distributions[n].rows) != bytes_of(b.q.distributions[n].rows)))
      return "the distribution after node " + std::to_string(n) + " differs";
  }
  return "";
}

// What the drafter of a run was asked for, as it went.
struct Life {
  Drafter* drafter = nullptr;
  std::set<SequenceId> held{};  // drafted for, and not forgotten since
  Budget widest{};              // the largest budget so far
  bool race = false;
};

// A cache of the drafter lacks more tokens than it may read in this step: its model was skipped, and catches up.
bool lacks_rows(const Host& host, const DraftRequest& r) {
  return std::ranges::any_of(host.caches(), [&](const auto& c) { return c->most_unseen(*r.sequence) > r.rows; });
}

// The drafter of the run. After every call `judge` gets the requests and the trees, and whether the request was short
// of rows.
class Lived : public Drafter {
 public:
  using Judge = std::function<void(Host&, const DraftRequest&, const DraftTree&, bool)>;
  Lived(std::unique_ptr<Drafter> inner, Host& host, Life& life, bool forgets, Judge judge)
      : inner_(std::move(inner)), host_(host), life_(life), forgets_(forgets), judge_(std::move(judge)) {
    life_ = {.drafter = inner_.get()};
  }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftRequest> all(requests.begin(), requests.end());
    for (DraftRequest& r : all) {
      if (forgets_ && r.budget.drafts() && (r.sequence->id + SequenceId(r.sequence->length())) % 4 == 0) {
        inner_->forget(*r.sequence);
        r.rows = r.sequence->length();  // it has all tokens to read again
      }
      life_.held.insert(r.sequence->id), life_.race = r.race;
      if (r.budget.nodes > life_.widest.nodes) life_.widest = r.budget;
    }
    std::vector<bool> short_of_rows;
    for (const DraftRequest& r : all) short_of_rows.push_back(lacks_rows(host_, r));
    auto trees = inner_->draft(all);
    for (std::size_t i = 0; i < std::min(trees.size(), all.size()); ++i)
      judge_(host_, all[i], trees[i], short_of_rows[i]);
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override { inner_->observe(outcomes); }
  void observe_step(const StepReport& report) override { inner_->observe_step(report); }
  void forget(const Sequence& sequence) override {
    inner_->forget(sequence);
    life_.held.erase(sequence.id);
  }

 private:
  std::unique_ptr<Drafter> inner_;
  Host& host_;
  Life& life_;
  bool forgets_;
  Judge judge_;
};

// Compares with drafters that were made a moment ago.
class Fresh {
 public:
  Fresh(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models)
      : subject_(subject), scenario_(scenario), backend_(backend), models_(models) {}

  // How the tree differs from a fresh drafter's; empty if it does not. With `shorter`, a tree of fewer nodes is not
  // compared.
  // `target`: of the engine, whose cache the fresh one may view too.
  std::string difference_of(DraftRequest request, const DraftTree& tree, const Host& target, bool shorter,
                            Finding& f) const {
    PagePool pool(backend_, page_bytes_of(subject_, models_, scenario_.engine.page_rows), 512);
    Host host(backend_, pool, models_.target->info(), models_.load, false,
              {models_.target, target.target_cache(), &subject_.registries});
    const auto fresh = subject_.registries.drafters.make(subject_.configs.drafter, host);
    request.rows = 1 << 20;
    const DraftTree other = std::move(fresh->draft({&request, 1}).front());
    fresh->forget(*request.sequence);
    if (shorter && tree.nodes < other.nodes) return "";
    // One that views the engine's cache has the pages that the drafter of the run left.
    if (shorter && target.target_cache() && other.nodes < tree.nodes) return "";
    ++f.cases;
    return difference(tree, other);
  }

 private:
  const Subject& subject_;
  const Scenario& scenario_;
  HostBackend& backend_;
  const Models& models_;
};

// A sequence with the id and the stream of one that ended, and with another text.
Sequence returning(const Sequence& ended, const Tokens& text) {
  Sequence s = ended;
  s.tokens = text, s.prompt_length = int(text.size()) - 1, s.finish = Finish::running, s.logprobs.clear();
  s.tally = Tally(s.sampling.penalties(), s.sampling.logit_bias, s.tokens);
  return s;
}

// After all sequences have ended: what the drafter of the run proposes to sequences that begin then.
class Afterwards {
 public:
  Afterwards(const Life& life, std::span<const Sequence> ended, const Fresh& fresh, TargetStates& states,
             const Host& host, bool shorter, Finding& f)
      : life_(life), ended_(ended), fresh_(fresh), states_(states), host_(host), shorter_(shorter), f_(f) {}

  // Every sequence was forgotten, for whatever reason it ended: what comes now under a known id is unknown to the
  // drafter. No text begins with the one before it, from which a table that was kept would go on as it should.
  void expect_forgotten() const {
    if (!life_.held.empty())
      f_.fail("Drafter::forget was not called for sequence " + std::to_string(*life_.held.begin()) +
              ", which has ended");
    // What comes after it shows whether an end was heard of, so the last one is one that came before.
    for (std::size_t i = 0; drafts() && i < ended_.size(); ++i)
      for (std::size_t k = 0; k <= std::size(kEnds); ++k) {
        Tokens text = text_of(i + k + 1);
        if (k % 2 == 0) text.resize((text.size() + 1) / 2);
        expect_unknown(returning(ended_[i], text), kEnds[(i + k) % std::size(kEnds)]);
      }
  }

  // Two sequences that are alike in all but the id and the end of their texts.
  void expect_apart() const {
    constexpr std::size_t kPairs = 4, kBeginning = 8, kRest = 10;
    for (std::size_t i = 0; drafts() && i < std::min(kPairs, ended_.size()); ++i) {
      const Tokens& other = text_of(i + 1);
      Tokens text = text_of(i);
      text.resize(std::min(text.size(), kBeginning));
      text.insert(text.end(), other.begin(), other.begin() + std::ptrdiff_t(std::min(other.size(), kRest)));
      Sequence first = returning(ended_[i], text_of(i)), second = returning(ended_[i], text);
      second.id += kIdsApart;
      (void)draft(request(first));
      const std::string how = difference_of(second, shorter_);
      first.finish = kEnds[i % std::size(kEnds)], second.finish = kEnds[(i + 1) % std::size(kEnds)];
      life_.drafter->forget(first), life_.drafter->forget(second);
      if (!how.empty())
        f_.fail("sequence " + std::to_string(second.id) + ", drafted for beside sequence " + std::to_string(first.id) +
                " of the same stream and the same first tokens, does not get what a fresh drafter proposes: " + how +
                "; keep what is stored for a sequence by the whole of Sequence::id");
      for (const Sequence& s : {second, first}) expect_unknown(returning(s, other), Finish::length);
    }
  }

 private:
  // The drafter does not know the sequence, whose id is that of a former one with another text; then it ends so. It is
  // forgotten at another address.
  void expect_unknown(const Sequence& again, Finish end) const {
    const std::string how = difference_of(again, shorter_ && host_.caches().size() > 1);
    Sequence ended = again;
    ended.finish = end;
    life_.drafter->forget(ended);
    if (!how.empty())
      f_.fail("sequence " + std::to_string(again.id) + " was forgotten, and one of this id with another text of " +
              std::to_string(again.length()) + " tokens does not get what a fresh drafter proposes: " + how +
              "; Drafter::forget must drop all that is kept of the sequence");
  }
  bool drafts() const { return life_.drafter && life_.widest.drafts(); }
  const Tokens& text_of(std::size_t i) const { return ended_[i % ended_.size()].tokens; }
  DraftRequest request(const Sequence& s) const {
    states_.forget(s);  // its id may have had another text
    return {&s,         life_.widest, 1 << 20, {s.sampling.seed, s.stream, std::uint32_t(s.length()), 0},
            life_.race, states_.of(s)};
  }
  DraftTree draft(const DraftRequest& one) const { return std::move(life_.drafter->draft({&one, 1}).front()); }
  std::string difference_of(const Sequence& s, bool shorter) const {
    const DraftRequest one = request(s);
    return fresh_.difference_of(one, draft(one), host_, shorter, f_);
  }

  const Life& life_;
  std::span<const Sequence> ended_;
  const Fresh& fresh_;
  TargetStates& states_;
  const Host& host_;
  bool shorter_;  // pages are short: a tree of fewer nodes is not compared where two sequences or models share them
  Finding& f_;
};

// Where pages are short, a drafter with a model drafts what fits.
bool may_be_shorter(Interruption interruption, const Host& host) {
  return interruption == Interruption::preempted && !host.caches().empty();
}

}  // namespace

Finding memory_across(const Subject& subject, Interruption interruption, const Scenario& scenario, HostBackend& backend,
                      const Models& models, std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  const Fresh fresh(subject, scenario, backend, models);
  Life life;
  const auto judge = [&](Host& host, const DraftRequest& request, const DraftTree& tree, bool short_of_rows) {
    if (!request.budget.drafts()) return;
    const bool shorter = short_of_rows || may_be_shorter(interruption, host);
    const std::string how = fresh.difference_of(request, tree, host, shorter, f);
    if (!how.empty())
      f.fail("sequence " + std::to_string(request.sequence->id) + " at length " +
             std::to_string(request.sequence->length()) + ": " + how);
  };
  const Subject lived = around(subject, [&](std::unique_ptr<Drafter> made, Host& host) {
    return std::make_unique<Lived>(std::move(made), host, life, interruption == Interruption::forgotten, judge);
  });
  std::vector<Sequence> ended;
  const RunOutcome outcome =
      run_scenario(lived, scenario, backend, models, requests,
                   [&](Engine& engine, const StepReport& report, std::span<const Sequence* const>) {
                     ended.insert(ended.end(), report.finished.begin(), report.finished.end());
                     if (!engine.idle()) return;
                     const bool shorter = may_be_shorter(interruption, engine.host());
                     TargetStates states(backend, models, engine.needs());
                     const Afterwards afterwards(life, ended, fresh, states, engine.host(), shorter, f);
                     afterwards.expect_forgotten(), afterwards.expect_apart();
                   });
  f.accepted = outcome.accepted, f.rejected = outcome.rejections;
  f.seen["preemptions"] = outcome.preempted;
  if (f.holds && interruption == Interruption::preempted && outcome.preempted == 0)
    f.fail("no sequence was preempted, so nothing was shown");
  return f;
}

Finding memory(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models,
               std::span<const TestRequest> requests) {
  return memory_across(subject, Interruption::none, scenario, backend, models, requests);
}

}  // namespace foretoken::conformance
