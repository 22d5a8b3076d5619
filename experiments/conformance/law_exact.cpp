#include <algorithm>
#include <cmath>
#include <optional>

#include "experiments/conformance/enumerators.h"
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

ExactCase alone(ExactCase c) {
  c.at_once = 1;
  return c;
}

// The case one token less deep.
Finding cut(const Subject& subject, const ExactCase& c) {
  Finding f = exact(subject, shallower(c));
  if (f.cut_to == 0) f.cut_to = c.tokens - 1;
  return f;
}

// Decodes the prompts of a case, as often as is asked for at once.
class Decoding {
 public:
  Decoding(const Subject& subject, const ExactCase& c, HostBackend& backend, const Models& models)
      : subject_(subject), backend_(backend), models_(models), scenario_(c.scenario) {
    const int times = c.at_once, each = int(c.prompts.size());
    scenario_.enough = c.tokens, scenario_.group = each;
    if (!c.stop.empty()) scenario_.limits = [&c](Limits& limits) { limits.stop = stop_at(c.stop); };
    if (times > 1) scenario_.engine.batch = times * each;
    scenario_.engine.pages *= times, scenario_.engine.step_rows *= times;
    for (int i = 0; i < times; ++i)
      for (int k = 0; k < each; ++k)
        requests_.push_back({c.prompts[std::size_t(k)], requests_.size() + 1,
                             c.max_new_tokens > 0 ? c.max_new_tokens : c.tokens + 3,
                             c.samples && k > 0 ? i * each : -1});
  }

  RunOutcome run(int times) const {
    return run_scenario(subject_, scenario_, backend_, models_,
                        std::span(requests_).first(std::size_t(times * scenario_.group)));
  }

 private:
  const Subject& subject_;
  HostBackend& backend_;
  const Models& models_;
  Scenario scenario_;
  std::vector<TestRequest> requests_;
};

// Whether there are surely more than `most` ways, by an estimate: the mean of random ones. It is given more of them
// until it lies three standard errors from the bound. What stays undecided is followed, and then ends at the bound.
bool surely_more(Enumerators& chance, const Decoding& decoding, const ExactCase& c) {
  constexpr int kFirst = 16, kMost = 1024;
  constexpr double kErrors = 3, kFarMore = 3;  // a bad estimate is rarely so far off
  const double most = double(c.most_ways);
  double sum = 0, squares = 0;
  std::optional<bool> more;
  for (int n = 0, look = kFirst; !more;) {
    chance.probe(std::uint64_t(n) + 1);
    (void)decoding.run(c.at_once);
    for (int i = 0; i < c.at_once; ++i, ++n) sum += chance.ways(i), squares += chance.ways(i) * chance.ways(i);
    if (n < look) continue;  // it looks at 16, 32, 64, ...
    look *= 2;
    const double mean = sum / n, error = std::sqrt(std::max(0.0, squares / n - mean * mean) / (n - 1));
    if (std::abs(mean - most) > kErrors * error || n >= kMost) more = mean > most * (n < kMost ? 1 : kFarMore);
  }
  chance.probe(0);
  return *more;
}

// Follows all outcomes; nothing if there are more than may be.
std::optional<Joint> follow(Enumerators& chance, const Decoding& decoding, const ExactCase& c, Finding& f) {
  const bool may_cut = c.most_ways > 0 && c.tokens > c.least;
  const std::size_t each = c.prompts.size();
  Joint joint;
  while (const int times = chance.begin()) {
    if (may_cut && chance.least() > c.most_ways) return std::nullopt;
    const RunOutcome outcome = decoding.run(times);
    for (int i = 0; i < times; ++i) {
      const auto first = outcome.outputs.begin() + std::ptrdiff_t(std::size_t(i) * each);
      std::vector<Tokens> outputs(first, first + std::ptrdiff_t(each));
      for (Tokens& t : outputs)
        if (c.max_new_tokens != c.tokens)
          t.resize(std::min(t.size(), std::size_t(c.tokens)));  // an output that must end there is compared whole
      joint[std::move(outputs)] += chance.weight(i);
    }
    chance.end();
    f.accepted += outcome.accepted, f.rejected += outcome.rejections;
    if (outcome.prefix_rows > 0) f.seen["prefix rows"] += long(outcome.prefix_rows);
  }
  return joint;
}

}  // namespace

Finding exact(const Subject& subject, const ExactCase& c) {
  const auto target = std::make_shared<TableModel>(c.target);
  Models models = table_models(c.target);
  models.target = c.disguise ? c.disguise(target) : target;
  Enumerators chance(c.at_once, int(c.prompts.size()), c.remembers);
  Renaming renaming(c.rename, &chance);
  const auto backend = c.backend ? c.backend() : std::make_unique<ReferenceBackend>();
  if (c.load) models.load = c.load(*backend);
  backend->set_chance(c.rename ? static_cast<Chance*>(&renaming) : &chance);
  Finding f{.what = subject.text()};
  try {
    const Decoding decoding(subject, c, *backend, models);
    if (c.most_ways > 0 && c.tokens > c.least && surely_more(chance, decoding, c)) return cut(subject, c);
    const auto joint = follow(chance, decoding, c, f);
    if (!joint) return cut(subject, c);
    compare(*joint, expected(*target, c), chance.asked_twice(), f);
  } catch (const std::exception& e) {
    if (chance.entangled()) return exact(subject, alone(c));
    f.fail(e.what());
  }
  f.cases = chance.paths();
  return f;
}

}  // namespace foretoken::conformance
