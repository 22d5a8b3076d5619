// memory: what a drafter keeps of its sequences changes no proposal.
#include <algorithm>
#include <optional>
#include <set>

#include "experiments/conformance/laws.h"
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

// The drafter of the run. After every call `judge` gets the requests and the trees.
class Lived : public Drafter {
 public:
  using Judge = std::function<void(Host&, const DraftRequest&, const DraftTree&)>;
  Lived(std::unique_ptr<Drafter> inner, Host& host, Life& life, bool forgets, Judge judge)
      : inner_(std::move(inner)), host_(host), life_(life), forgets_(forgets), judge_(std::move(judge)) {
    life_ = {.drafter = inner_.get()};
  }
  Needs needs() const override { return inner_->traits(); }
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
    auto trees = inner_->draft(all);
    for (std::size_t i = 0; i < std::min(trees.size(), all.size()); ++i) judge_(host_, all[i], trees[i]);
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override { inner_->observe(outcomes); }
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
  std::string difference_of(DraftRequest request, const DraftTree& tree, bool shorter, Finding& f) const {
    PagePool pool(backend_, models_.target->info().kv.page_bytes(scenario_.engine.page_rows), 512);
    Host host(backend_, pool, models_.target->info(), models_.load, false, {models_.target, &subject_.registries});
    const auto fresh = subject_.registries.drafters.make(subject_.configs.drafter, host);
    request.rows = 1 << 20;
    const DraftTree other = std::move(fresh->draft({&request, 1}).front());
    fresh->forget(*request.sequence);
    if (shorter && tree.nodes < other.nodes) return "";
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
  s.tokens = text, s.prompt_length = int(text.size()), s.finish = Finish::running, s.logprobs.clear();
  s.tally = Tally(s.sampling.penalties(), s.sampling.logit_bias, s.tokens);
  return s;
}

// Every sequence has ended and was forgotten: what comes now under a known id is unknown to the drafter.
void expect_forgotten(const Life& life, const std::vector<Sequence>& ended, const Fresh& fresh, Finding& f) {
  if (!life.held.empty())
    f.fail("Drafter::forget was not called for sequence " + std::to_string(*life.held.begin()) + ", which has ended");
  if (!life.drafter || !life.widest.drafts()) return;
  for (std::size_t i = 0; i < ended.size(); ++i)
    for (const bool whole : {false, true}) {
      Tokens text = ended[(i + 1) % ended.size()].tokens;
      if (!whole) text.resize((text.size() + 1) / 2);
      const Sequence again = returning(ended[i], text);
      const DraftRequest request{&again,
                                 life.widest,
                                 1 << 20,
                                 {again.sampling.seed, again.stream, std::uint32_t(again.length()), 0},
                                 life.race};
      const DraftTree tree = std::move(life.drafter->draft({&request, 1}).front());
      const std::string how = fresh.difference_of(request, tree, false, f);
      life.drafter->forget(again);
      if (!how.empty())
        f.fail("sequence " + std::to_string(again.id) + " was forgotten, and one of this id with another text of " +
               std::to_string(again.length()) + " tokens does not get what a fresh drafter proposes: " + how +
               "; Drafter::forget must drop all that is kept of the sequence");
    }
}

}  // namespace

Finding memory_across(const Subject& subject, Interruption interruption, const Scenario& scenario, HostBackend& backend,
                      const Models& models, std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  const Fresh fresh(subject, scenario, backend, models);
  Life life;
  const auto judge = [&](Host& host, const DraftRequest& request, const DraftTree& tree) {
    if (!request.budget.drafts()) return;
    // Where pages are short, a drafter with a model drafts what fits.
    const bool shorter = interruption == Interruption::preempted && !host.caches().empty();
    const std::string how = fresh.difference_of(request, tree, shorter, f);
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
                     if (engine.idle()) expect_forgotten(life, ended, fresh, f);
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
