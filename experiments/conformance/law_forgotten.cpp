// memory, of thousands of short sequences: what a drafter was told to forget is gone, from its proposals and from the
// memory that is in use.
#include <algorithm>

#include "experiments/conformance/left_in_use.h"
#include "experiments/conformance/target_states.h"
#include "experiments/conformance/whole_runs.h"

namespace foretoken::conformance {
namespace {

constexpr int kVocab = 4;

// A drafter without an engine, and short sequences one after another.
class Lives {
 public:
  Lives(const Subject& subject, HostBackend& backend, const Models& models)
      : pool_(backend, page_bytes_of(subject, models, 4), 512),
        needs_(needs_of(subject.registries, subject.configs.drafter)),
        states_(backend, models, needs_),
        host_(backend, pool_, models.target->info(), models.load, false,
              {models.target, states_.cache(), &subject.registries}),
        drafter_(subject.registries.drafters.make(subject.configs.drafter, host_)),
        who_("the drafter '" + subject.configs.drafter.at("name").get<std::string>() + "'"),
        race_(soundness_of(subject.registries, subject.configs.verifier).race) {}

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
  std::string proposal(const Sequence& s) { return text_of_tree(draft(s)); }
  // Some rounds, in each of which all levels are accepted, or none; then the sequence ends so.
  void live(Sequence s, int rounds, bool accepts, Finish end) {
    for (int round = 0; round < rounds; ++round) {
      const DraftTree tree = draft(s);
      Verdict v;
      int node = 0;
      for (int n = 1; accepts && n < tree.nodes; ++n)
        if (*tree.parents.row<std::int32_t>(n) == node && *tree.tokens.row<Token>(n) >= 0)
          v.follow(node = n, *tree.tokens.row<Token>(n));
      v.finish(Token(round % kVocab));
      s.tokens.insert(s.tokens.end(), v.tokens, v.tokens + v.length + 1);
      const Tensor ranks = Tensor::host({tree.nodes, std::max(1, needs_.ranks)}, DType::i32);
      std::fill_n(ranks.data<std::int32_t>(), ranks.elements(), 0);
      const Outcome outcome{&s, &tree, &v, needs_.ranks > 0 ? ranks : Tensor()};
      drafter_->observe({&outcome, 1});
    }
    forget(s, end);
    for (const auto& books : host_.books()) (void)books->seconds();  // else it keeps the times of all forwards
  }
  void forget(Sequence s, Finish end) {
    s.finish = end;
    drafter_->forget(s), states_.forget(s);
    host_.expect_forgotten(s, who_);
  }

 private:
  DraftTree draft(const Sequence& s) {
    const DraftRequest one{
        &s, {.nodes = 9, .depth = 4}, 1 << 20, {1, s.stream, std::uint32_t(s.length()), 0}, race_, states_.of(s)};
    return std::move(drafter_->draft({&one, 1}).front());
  }
  static std::string text_of_tree(const DraftTree& tree) {
    std::string text;
    for (int n = 1; n < tree.nodes; ++n)
      text += (text.empty() ? "" : " ") + std::to_string(*tree.parents.row<std::int32_t>(n)) + ">" +
              std::to_string(*tree.tokens.row<Token>(n));
    return "[" + text + "]";
  }

  PagePool pool_;
  Needs needs_;
  TargetStates states_;
  Host host_;
  std::unique_ptr<Drafter> drafter_;
  std::string who_;
  bool race_;
};

}  // namespace

Finding forgotten_ids(const Subject& subject, HostBackend& backend, const Models& models) {
  Finding f{.what = subject.text()};
  Lives lives(subject, backend, models);
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

Finding nothing_left(const Subject& subject, HostBackend& backend, const Models& models) {
  Finding f{.what = subject.text()};
  Lives lives(subject, backend, models);
  expect_nothing_left(
      [&](int i) {
        lives.live(Lives::sequence(SequenceId(i + 1), i), 1, i % 2 == 0, kEnds[std::size_t(i) % std::size(kEnds)]);
      },
      "Drafter::forget must drop all that is kept of the sequence", f);
  return f;
}

}  // namespace foretoken::conformance
