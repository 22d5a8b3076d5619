#include <algorithm>
#include <cmath>
#include <optional>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/target_distribution.h"

namespace foretoken::conformance {
namespace {

bool ends_with(std::span<const Token> text, const Tokens& end) {
  return !end.empty() && text.size() >= end.size() && std::ranges::equal(text.last(end.size()), end);
}

// Checked after every token, as a stop rule does.
StopRule stop_at(const Tokens& end) {
  return [end](std::span<const Token> generated, int seen) -> std::optional<int> {
    for (std::size_t n = std::size_t(seen) + 1; n <= generated.size(); ++n)
      if (ends_with(generated.first(n), end)) return int(n);
    return std::nullopt;
  };
}

using Joint = std::map<std::vector<Tokens>, double>;

// The target's distribution of one output: every continuation, up to `tokens`, a stop token or the limit.
void unfold(const TableModel& target, const ExactCase& c, const Tokens& context, Tokens& text, double weight,
            std::map<Tokens, double>& law) {
  const auto& stops = c.scenario.stop_tokens;
  const bool stopped =
      ends_with(text, c.stop) || (!text.empty() && std::ranges::find(stops, text.back()) != stops.end());
  if (stopped || int(text.size()) == c.tokens || (c.max_new_tokens > 0 && int(text.size()) == c.max_new_tokens)) {
    law[text] += weight;
    return;
  }
  Tokens all = context;
  all.insert(all.end(), text.begin(), text.end());
  const std::vector<double> p = target_distribution(target, all, int(context.size()), c.scenario.sampling);
  for (Token x = 0; x < int(p.size()); ++x) {
    if (p[std::size_t(x)] == 0) continue;
    text.push_back(x);
    unfold(target, c, context, text, weight * p[std::size_t(x)], law);
    text.pop_back();
  }
}

Joint expected(const TableModel& target, const ExactCase& c) {
  Joint joint{{{}, 1.0}};
  for (const Tokens& prompt : c.prompts) {
    std::map<Tokens, double> one;
    Tokens text;
    unfold(target, c, prompt, text, 1, one);
    Joint wider;
    for (const auto& [texts, weight] : joint)
      for (const auto& [t, p] : one) {
        auto more = texts;
        more.push_back(t);
        wider[more] = weight * p;
      }
    joint = std::move(wider);
  }
  return joint;
}

// `note` is added to the reason.
void compare(const Joint& found, const Joint& law, const std::string& note, Finding& f) {
  double worst = 0, variation = 0, mass = 0;
  std::vector<Tokens> where;
  Joint all = law;
  for (const auto& [texts, p] : found) all.try_emplace(texts, 0.0);
  for (const auto& [texts, p] : all) {
    const auto it = found.find(texts), at = law.find(texts);
    const double got = it == found.end() ? 0 : it->second, wanted = at == law.end() ? 0 : at->second;
    variation += std::abs(got - wanted) / 2;
    mass += got;
    if (std::abs(got - wanted) > worst) worst = std::abs(got - wanted), where = texts;
  }
  f.measure = variation;
  if (worst <= 1e-12 && std::abs(mass - 1) <= 1e-12) return;
  std::string text;
  for (const Tokens& t : where) text += "[" + text_of(t) + "]";
  f.fail("total variation " + text_of(variation) + ", probabilities sum to " + std::to_string(mass) + ", worst at " +
         text + " by " + text_of(worst) + note);
}

// One token less, with the length limit equally close.
ExactCase shallower(ExactCase c) {
  --c.tokens;
  if (c.max_new_tokens > 0) --c.max_new_tokens;
  return c;
}

// The case one token less deep.
Finding cut(const Subject& subject, const ExactCase& c) {
  Finding f = exact(subject, shallower(c));
  if (f.cut_to == 0) f.cut_to = c.tokens - 1;
  return f;
}

// Whether `run` surely takes more than `most` ways, by an estimate: the mean of random ones. It is given more of them
// until it lies three standard errors from the bound. What stays undecided is followed, and then ends at the bound.
template <class Run> bool surely_more(Enumerator& chance, long most, const Run& run) {
  constexpr int kFirst = 16, kMost = 1024;
  constexpr double kErrors = 3, kFarMore = 3;  // a bad estimate is rarely so far off
  double sum = 0, squares = 0;
  std::optional<bool> more;
  for (int n = 1; !more && n <= kMost; ++n) {
    chance.probe(std::uint64_t(n));
    (void)run();
    sum += chance.ways(), squares += chance.ways() * chance.ways();
    if (n < kFirst || (n & (n - 1)) != 0) continue;  // it looks at 16, 32, 64, ...
    const double mean = sum / n, error = std::sqrt(std::max(0.0, squares / n - mean * mean) / (n - 1));
    if (std::abs(mean - double(most)) > kErrors * error || n == kMost)
      more = mean > double(most) * (n < kMost ? 1 : kFarMore);
  }
  chance.probe(0);
  return *more;
}

}  // namespace

Finding exact(const Subject& subject, const ExactCase& c) {
  const auto target = std::make_shared<TableModel>(c.target);
  Models models = table_models(c.target);
  models.target = c.disguise ? c.disguise(target) : target;
  Enumerator chance(c.remembers);
  Renaming renaming(c.rename, &chance);
  const auto backend = c.backend ? c.backend() : std::make_unique<ReferenceBackend>();
  backend->set_chance(c.rename ? static_cast<Chance*>(&renaming) : &chance);
  Scenario scenario = c.scenario;
  scenario.enough = c.tokens;
  if (!c.stop.empty()) scenario.limits = [&c](Limits& limits) { limits.stop = stop_at(c.stop); };
  std::vector<TestRequest> requests;
  for (const Tokens& prompt : c.prompts)
    requests.push_back({prompt, requests.size() + 1, c.max_new_tokens > 0 ? c.max_new_tokens : c.tokens + 3,
                        c.samples && !requests.empty() ? 0 : -1});

  Finding f{.what = subject.text()};
  Joint joint;
  try {
    const auto run = [&] { return run_scenario(subject, scenario, *backend, models, requests); };
    const bool may_cut = c.most_ways > 0 && c.tokens > c.least;
    if (may_cut && surely_more(chance, c.most_ways, run)) return cut(subject, c);
    do {
      if (may_cut && chance.paths() > c.most_ways) return cut(subject, c);
      RunOutcome outcome = run();
      for (Tokens& t : outcome.outputs)
        if (c.max_new_tokens != c.tokens)
          t.resize(std::min(t.size(), std::size_t(c.tokens)));  // an output that must end there is compared whole
      joint[outcome.outputs] += chance.weight();
      f.accepted += outcome.accepted, f.rejected += outcome.rejections;
      if (outcome.prefix_rows > 0) f.seen["prefix rows"] += long(outcome.prefix_rows);
    } while (chance.next());
    compare(joint, expected(*target, c), chance.asked_twice(), f);
  } catch (const std::exception& e) {
    f.fail(e.what());
  }
  f.cases = chance.paths();
  return f;
}

}  // namespace foretoken::conformance
