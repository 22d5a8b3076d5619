// memory: what a drafter keeps of its sequences changes no proposal.
#include <algorithm>
#include <optional>
#include <set>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/scenario.h"
#include "kernels/host_backend.h"

namespace foretoken::conformance {
namespace {

std::string bytes_of(const Tensor& t) { return {static_cast<const char*>(t.raw()), std::size_t(t.bytes())}; }

// How two trees differ; empty if they are equal.
std::string difference(const DraftTree& a, const DraftTree& b) {
  if (a.nodes != b.nodes) return std::to_string(a.nodes) + " nodes instead of " + std::to_string(b.nodes);
  for (int n = 1; n < a.nodes; ++n) {
    const std::string node = "node " + std::to_string(n);
    if (token_of(a, n) != token_of(b, n))
      return node + " is " + std::to_string(token_of(a, n)) + " instead of " + std::to_string(token_of(b, n));
    if (parent_of(a, n) != parent_of(b, n) || drawn_of(a, n) != drawn_of(b, n))
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
class Lived : public Around {
 public:
  using Judge = std::function<void(Host&, const DraftRequest&, const DraftTree&, bool)>;
  Lived(std::unique_ptr<Drafter> inner, Host& host, Life& life, bool forgets, Judge judge)
      : Around(std::move(inner)), host_(host), life_(life), forgets_(forgets), judge_(std::move(judge)) {
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
  void forget(const Sequence& sequence) override {
    inner_->forget(sequence);
    life_.held.erase(sequence.id);
  }

 private:
  Host& host_;
  Life& life_;
  bool forgets_;
  Judge judge_;
};

// How the tree differs from one of a drafter that was made a moment ago; empty if it does not. With `shorter`, a tree
// of fewer nodes is not compared. `engine`: whose target cache the fresh one may view too.
std::string difference_from_fresh(const Run& run, DraftRequest request, const DraftTree& tree, const Host& engine,
                                  bool shorter, Finding& f) {
  BareHost bare(run.backend, run.models, run.subject.registries,
                page_bytes_of(run.subject, run.models, run.scenario.engine.page_rows), 512, engine.target_cache());
  const auto fresh = run.subject.registries.drafters.make(run.subject.configs.drafter, bare.host);
  request.rows = 1 << 20;
  const DraftTree other = std::move(fresh->draft({&request, 1}).front());
  fresh->forget(*request.sequence);
  if (shorter && tree.nodes < other.nodes) return "";
  // One that views the engine's cache has the pages that the drafter of the run left.
  if (shorter && engine.target_cache() && other.nodes < tree.nodes) return "";
  ++f.cases;
  return difference(tree, other);
}

// A sequence with the id and the stream of one that ended, and with another text.
Sequence returning(const Sequence& ended, const Tokens& text) {
  Sequence s = ended;
  s.tokens = text, s.prompt_length = int(text.size()) - 1, s.finish = Finish::running, s.logprobs.clear();
  s.tally = Tally(s.sampling.penalties(), s.sampling.logit_bias, s.tokens, s.sampling.constraint);
  return s;
}

// After all sequences have ended: what the drafter of the run proposes to sequences that begin then.
class Afterwards {
 public:
  Afterwards(const Run& run, const Life& life, std::span<const Sequence> ended, TargetStates& states, const Host& host,
             bool shorter, Finding& f)
      : run_(run), life_(life), ended_(ended), states_(states), host_(host), shorter_(shorter), f_(f) {}

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
    return difference_from_fresh(run_, one, draft(one), host_, shorter, f_);
  }

  const Run& run_;
  const Life& life_;
  std::span<const Sequence> ended_;
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

Finding memory(const Run& run, Interruption interruption) {
  Finding f{.what = run.subject.text()};
  Life life;
  const auto judge = [&](Host& host, const DraftRequest& request, const DraftTree& tree, bool short_of_rows) {
    if (!request.budget.drafts()) return;
    const bool shorter = short_of_rows || may_be_shorter(interruption, host);
    const std::string how = difference_from_fresh(run, request, tree, host, shorter, f);
    if (!how.empty()) f.fail(text_of(*request.sequence) + ": " + how);
  };
  const Subject lived = around(run.subject, [&](std::unique_ptr<Drafter> made, Host& host) {
    return std::make_unique<Lived>(std::move(made), host, life, interruption == Interruption::forgotten, judge);
  });
  std::vector<Sequence> ended;
  const auto after = [&](Engine& engine, const StepReport& report, std::span<const Sequence* const>) {
    ended.insert(ended.end(), report.finished.begin(), report.finished.end());
    if (!engine.idle()) return;
    TargetStates states(run.backend, run.models, engine.needs());
    const Afterwards afterwards(run, life, ended, states, engine.host(), may_be_shorter(interruption, engine.host()),
                                f);
    afterwards.expect_forgotten();
    afterwards.expect_apart();
  };
  const RunOutcome outcome = run_scenario(run.with(lived), after);
  f.add(outcome);
  f.seen["preemptions"] = outcome.preempted;
  if (f.holds && interruption == Interruption::preempted && outcome.preempted == 0)
    f.fail("no sequence was preempted, so nothing was shown");
  return f;
}

namespace {

constexpr int kVocab = 4;

// A drafter without an engine, and short sequences one after another.
class Lives {
 public:
  explicit Lives(const Run& run)
      : needs_(needs_of(run.subject.registries, run.subject.configs.drafter)),
        states_(run.backend, run.models, needs_),
        bare_(run.backend, run.models, run.subject.registries, page_bytes_of(run.subject, run.models, 4), 512,
              states_.cache()),
        drafter_(run.subject.registries.drafters.make(run.subject.configs.drafter, bare_.host)),
        who_("the drafter '" + run.subject.configs.drafter.at("name").get<std::string>() + "'"),
        race_(soundness_of(run.subject.registries, run.subject.configs.verifier).race) {}

  static constexpr int kTexts = 8;
  static Sequence sequence(SequenceId id, int text) {
    static const std::vector<TestRequest> texts = random_requests(kTexts, kVocab, 16, 0, 21);
    Sequence s;
    s.id = id, s.stream = 1, s.sampling.temperature = 1;
    for (int part = 0; part < 2; ++part)  // the end of the text has stood in it before
      for (const Token x : texts[std::size_t(text % kTexts)].prompt) s.tokens.push_back(x);
    s.prompt_length = s.length() - 1;  // a head drafts behind its first token
    return s;
  }

  // Of a sequence's next round.
  std::string proposal(const Sequence& s) { return text_of(draft(s)); }
  // Some rounds, in each of which all levels are accepted, or none; then the sequence ends so.
  void live(Sequence s, int rounds, bool accepts, Finish end) {
    for (int round = 0; round < rounds; ++round) {
      const DraftTree tree = draft(s);
      Verdict v;
      int node = 0;
      for (int n = 1; accepts && n < tree.nodes; ++n)
        if (parent_of(tree, n) == node && token_of(tree, n) >= 0) v.follow(node = n, token_of(tree, n));
      v.finish(Token(round % kVocab));
      s.tokens.insert(s.tokens.end(), v.tokens, v.tokens + v.length + 1);
      const Tensor ranks = Tensor::host({tree.nodes, std::max(1, needs_.ranks)}, DType::i32);
      std::fill_n(ranks.data<std::int32_t>(), ranks.elements(), 0);
      const Outcome outcome{&s, &tree, &v, needs_.ranks > 0 ? ranks : Tensor()};
      drafter_->observe({&outcome, 1});
    }
    forget(s, end);
    for (const auto& books : bare_.host.books()) (void)books->seconds();  // else it keeps the times of all forwards
  }
  void forget(Sequence s, Finish end) {
    s.finish = end;
    drafter_->forget(s);
    states_.forget(s);
    bare_.host.expect_forgotten(s, who_);
  }

 private:
  DraftTree draft(const Sequence& s) {
    const DraftRequest one{
        &s, {.nodes = 9, .depth = 4}, 1 << 20, {1, s.stream, std::uint32_t(s.length()), 0}, race_, states_.of(s)};
    return std::move(drafter_->draft({&one, 1}).front());
  }
  Needs needs_;
  TargetStates states_;
  BareHost bare_;
  std::unique_ptr<Drafter> drafter_;
  std::string who_;
  bool race_;
};

}  // namespace

Finding forgotten_ids(const Run& run) {
  Finding f{.what = run.subject.text()};
  Lives lives(run);
  SequenceId unknown = kIdsApart;
  for (int i = 0; i < 4 * Lives::kTexts && f.holds; ++i) {
    const SequenceId known = SequenceId(i % 5) + 1;
    const Finish end = kEnds[std::size_t(i) % std::size(kEnds)];
    lives.live(Lives::sequence(known, i), 6, i % 2 == 0, end);
    const auto proposed = [&](SequenceId id) {
      const Sequence s = Lives::sequence(id, i + 1);
      const std::string text = lives.proposal(s);
      lives.forget(s, end);
      return text;
    };
    // The first tells a drafter that learns from texts of this one.
    (void)proposed(++unknown);
    const std::string one = proposed(++unknown), other = proposed(++unknown);
    if (one != other) continue;
    const std::string again = proposed(known);
    ++f.cases;
    if (again != one)
      f.fail("sequence " + std::to_string(known) +
             " was forgotten, and another one of this id gets the draft (parent>token of each node) " + again +
             ", where one of an id that the drafter never met gets " + one +
             "; Drafter::forget must drop all that is kept of the sequence");
  }
  return f;
}

Finding nothing_left(const Run& run) {
  Finding f{.what = run.subject.text()};
  Lives lives(run);
  expect_nothing_left(
      [&](int i) {
        lives.live(Lives::sequence(SequenceId(i + 1), i), 1, i % 2 == 0, kEnds[std::size_t(i) % std::size(kEnds)]);
      },
      "Drafter::forget must drop all that is kept of the sequence", f);
  return f;
}

}  // namespace foretoken::conformance
