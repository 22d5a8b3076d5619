#include <algorithm>
#include <map>
#include <numeric>

#include "experiments/conformance/laws.h"

namespace foretoken::conformance {
namespace {

void note(const RunOutcome& outcome, Finding& f) { f.accepted += outcome.accepted, f.rejected += outcome.rejections; }

void expect_same(const std::vector<Tokens>& texts, const std::vector<Tokens>& others, const std::string& where,
                 Finding& f) {
  for (std::size_t i = 0; i < texts.size(); ++i, ++f.cases)
    if (texts[i] != others[i]) {
      const auto at = std::ranges::mismatch(texts[i], others[i]).in1 - texts[i].begin();
      f.fail(where + ": text " + std::to_string(i) + " is [" + text_of(others[i]) + "] instead of [" +
             text_of(texts[i]) + "], from token " + std::to_string(at) + " on");
    }
}

// All that a verifier reads of a tree, as bytes.
std::string signature(const DraftTree& t) {
  const auto bytes = [](const void* p, std::size_t n) { return std::string(static_cast<const char*>(p), n); };
  const std::size_t n = std::size_t(t.nodes);
  std::string s =
      bytes(t.parents.raw(), 4 * n) + bytes(t.tokens.raw(), 4 * n) + bytes(t.q.drawn.row<std::uint8_t>(0) + 1, n - 1);
  for (std::size_t i = 0; i < t.q.distributions.size() && i < n; ++i)
    if (t.q.distributions[i])
      s += bytes(t.q.distributions[i].logits.row<float>(0), 4 * std::size_t(t.q.distributions[i].vocab())) +
           bytes(t.q.distributions[i].rows.row<std::uint8_t>(0), sizeof(DistributionRow));
  return s;
}

// The tree proposed in every round, by stream and root.
using Rounds = std::map<std::pair<std::uint64_t, int>, std::string>;

RunOutcome recorded(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
                    std::span<const TestRequest> requests, Rounds& rounds) {
  const auto record = [&](Host&, std::span<const DraftRequest> draft_requests, std::span<const DraftTree> trees) {
    for (std::size_t i = 0; i < trees.size(); ++i)
      rounds[{draft_requests[i].sequence->stream, draft_requests[i].sequence->length()}] = signature(trees[i]);
  };
  return run_scenario(watched(subject, record), scenario, backend, models, requests);
}

// Compares round by round, as long as the trees are equal: equal trees give equal tokens, so the next round begins at
// the same root.
void compare_rounds(const TestRequest& request, const Tokens& text, const Tokens& other, const Rounds& alone,
                    const Rounds& batched, const std::string& where, Finding& f) {
  const int first = int(request.prompt.size());
  for (auto at = alone.find({request.stream, first}); at != alone.end() && at->first.first == request.stream; ++at) {
    const auto same = batched.find(at->first);
    const int begin = at->first.second - first;
    if (same == batched.end()) return f.fail(where + ": no round began at token " + std::to_string(begin));
    if (same->second != at->second) return;
    const auto next = std::next(at);
    const int end =
        next != alone.end() && next->first.first == request.stream ? next->first.second - first : int(text.size());
    ++f.cases;
    if (int(other.size()) < end || !std::equal(text.begin() + begin, text.begin() + end, other.begin() + begin))
      return f.fail(where + ": equal trees, but [" + text_of(other) + "] instead of [" + text_of(text) + "]");
  }
}

}  // namespace

Finding same_text(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
                  std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  const RunOutcome outcome = run_scenario(subject, scenario, backend, models, requests);
  note(outcome, f);
  expect_same(run_scenario(plain(subject), scenario, backend, models, requests).outputs, outcome.outputs,
              "against plain decoding", f);
  return f;
}

Finding batch(const Subject& subject, const Scenario& alone, const BatchCase& c, Backend& backend, const Models& models,
              std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  std::vector<Tokens> texts;
  Rounds rounds;
  for (const TestRequest& request : requests)
    texts.push_back(recorded(subject, alone, backend, models, {&request, 1}, rounds).outputs.front());
  for (std::size_t k = 0; k < c.batches.size(); ++k) {
    const std::string where = "batch " + std::to_string(k);
    std::vector<std::size_t> order(requests.size());  // another order of arrival for every batch
    std::iota(order.begin(), order.end(), 0);
    std::ranges::rotate(order, order.begin() + std::ptrdiff_t(k % requests.size()));
    if (k % 2) std::ranges::reverse(order);
    std::vector<TestRequest> arriving;
    for (const std::size_t i : order) arriving.push_back(requests[i]);
    Rounds batched;
    const RunOutcome outcome = recorded(subject, c.batches[k], backend, models, arriving, batched);
    note(outcome, f);
    f.seen["preemptions"] += outcome.preempted, f.seen["prefix rows"] += long(outcome.prefix_rows);
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (c.whole)
        expect_same({texts[order[i]]}, {outcome.outputs[i]}, where, f);
      else
        compare_rounds(arriving[i], texts[order[i]], outcome.outputs[i], rounds, batched, where, f);
    }
    if (outcome.pages_left != 0)
      f.fail(where + ": " + std::to_string(outcome.pages_left) + " pages are still held at the end");
  }
  return f;
}

Finding no_budget_is_plain(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
                           std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  Subject undrafted = subject;
  undrafted.configs.policy = {{"name", "fixed"}, {"length", 0}};
  const RunOutcome outcome = run_scenario(undrafted, scenario, backend, models, requests);
  if (outcome.drafted > 0) f.fail(std::to_string(outcome.drafted) + " nodes were drafted under a budget of 0");
  expect_same(run_scenario(plain(subject), scenario, backend, models, requests).outputs, outcome.outputs,
              "with no budget", f);
  return f;
}

}  // namespace foretoken::conformance
