#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "experiments/conformance/enumerator.h"
#include "experiments/conformance/laws.h"
#include "experiments/conformance/statistics.h"
#include "experiments/conformance/table_model.h"

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

using OutputLaw = std::map<Tokens, double>;

// The target's distribution of one output: every continuation, up to `tokens`, a stop token or the limit; those of
// probability 0 only if `impossible`.
void unfold(const TableModel& target, const ExactCase& c, const Tokens& context, bool impossible, Tokens& text,
            double weight, OutputLaw& law) {
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
    if (p[std::size_t(x)] == 0 && !impossible) continue;
    text.push_back(x);
    unfold(target, c, context, impossible, text, weight * p[std::size_t(x)], law);
    text.pop_back();
  }
}

Joint expected(const TableModel& target, const ExactCase& c) {
  Joint joint{{{}, 1.0}};
  for (const Tokens& prompt : c.prompts) {
    OutputLaw one;
    Tokens text;
    unfold(target, c, prompt, false, text, 1, one);
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
  const Apart apart(found, law);
  double mass = 0;
  for (const auto& [texts, p] : found) mass += p;
  f.measure = apart.variation;
  if (apart.worst <= 1e-12 && std::abs(mass - 1) <= 1e-12) return;
  std::string text;
  for (const Tokens& t : apart.at) text += "[" + text_of(t) + "]";
  f.fail("total variation " + text_of(apart.variation) + ", probabilities sum to " + std::to_string(mass) +
         ", worst at " + text + " by " + text_of(apart.worst) + note);
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
    return run_scenario(
        {subject_, scenario_, backend_, models_, std::span(requests_).first(std::size_t(times * scenario_.group))});
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
    f.add(outcome);
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
  const auto backend = c.backend ? c.backend() : std::make_unique<ReferenceBackend>();
  if (c.load) models.load = c.load(*backend);
  backend->set_chance(&chance);
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

namespace {

struct Cell {
  Tokens output;
  double probability;
  long count = 0;
};

// The outputs whose counts are the farthest from the expected ones, in their standard deviations.
std::string least_as_expected(const Tokens& prompt, std::vector<Cell> cells, double n) {
  constexpr std::size_t kMost = 3;
  const auto off = [n](const Cell& c) {
    const double expected = n * c.probability;
    return (double(c.count) - expected) / std::sqrt(std::max(expected * (1 - c.probability), 1e-9));
  };
  std::ranges::sort(cells, std::greater{}, [&](const Cell& c) { return std::abs(off(c)); });
  std::string text = "after [" + text_of(prompt) + "]";
  for (std::size_t k = 0; k < std::min(kMost, cells.size()); ++k)
    text += std::string(k > 0 ? "," : "") + " [" + text_of(cells[k].output) + "] came " +
            std::to_string(cells[k].count) + " times instead of " +
            std::to_string(std::lround(n * cells[k].probability)) + " (z = " + text_of(off(cells[k])) + ")";
  return text;
}

}  // namespace

Finding sampled(const Subject& subject, const SampledCase& c, HostBackend& backend) {
  Finding f{.what = subject.text()};
  const Models models = table_models(c.target);
  const ExactCase whole{.target = c.target, .tokens = c.tokens, .scenario = c.scenario};
  OutputLaw outputs;
  Tokens none;
  unfold(TableModel(c.target), whole, c.prompt, true, none, 1, outputs);
  std::map<Tokens, long> counted;
  f.cases = sample_size(int(outputs.size()), c.found, c.level, 0.99);
  constexpr long kOneEngine = 1024;  // requests; every step looks at all that wait
  for (long done = 0; done < f.cases; done += kOneEngine) {
    std::vector<TestRequest> requests;
    for (long i = done; i < std::min(f.cases, done + kOneEngine); ++i)
      requests.push_back({c.prompt, std::uint64_t(i), c.tokens + 1});
    const RunOutcome outcome = run_scenario({subject, c.scenario, backend, models, requests});
    for (const Tokens& t : outcome.outputs) ++counted[{t.begin(), t.begin() + c.tokens}];
    f.add(outcome);
  }
  std::vector<Cell> cells;
  std::vector<double> law;
  std::vector<long> counts;
  for (const auto& [output, p] : outputs) {
    cells.push_back({output, p, counted[output]});
    law.push_back(p);
    counts.push_back(cells.back().count);
  }
  const ChiSquare result = chi_square(counts, law);
  f.measure = result.p_value;
  f.what += ": chi-square " + std::to_string(result.statistic) + " of " + std::to_string(result.freedom) +
            " degrees, " + std::to_string(f.cases) + " texts";
  f.where = least_as_expected(c.prompt, std::move(cells), double(f.cases));
  f.holds = result.p_value > c.level;
  return f;
}

}  // namespace foretoken::conformance
