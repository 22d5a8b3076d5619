#include <algorithm>
#include <cmath>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/rounds.h"
#include "experiments/conformance/statistics.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::conformance {
namespace {

int depth_of(const RoundCase& c) {
  std::vector<int> depth{0};
  for (const RoundNode& n : c.nodes) depth.push_back(depth[std::size_t(n.parent)] + 1);
  return *std::ranges::max_element(depth);
}

// Adds every continuation of `text` by the target up to `tokens` tokens.
void continue_by_target(const RoundCase& c, std::size_t tokens, double weight, std::vector<Token>& text,
                        EmittedLaw& law) {
  if (text.size() == tokens) {
    law[text] += weight;
    return;
  }
  const std::vector<double> p = target_after(c, text);
  for (std::size_t x = 0; x < p.size(); ++x) {
    if (p[x] == 0) continue;
    text.push_back(Token(x));
    continue_by_target(c, tokens, weight * p[x], text, law);
    text.pop_back();
  }
}

std::string sequence(const std::vector<Token>& tokens) { return "[" + text_of(tokens) + "]"; }

// Fails unless both give every sequence the same probability. `note` is added to the reason.
void compare(const EmittedLaw& found, const EmittedLaw& law, const std::string& where, const std::string& note,
             Finding& f) {
  const Apart apart(found, law);
  f.measure = std::max(f.measure, apart.variation);
  if (!(apart.worst <= 1e-12))
    f.fail(where + ": total variation " + text_of(apart.variation) + ", worst at " + sequence(apart.at) + " by " +
           text_of(apart.worst) + note);
}

Finding exact_round(const RoundCase& c, const RoundOutcomes& found) {
  Finding f;
  EmittedLaw emitted, continued, law;
  for (const auto& [tokens, tree] : found.trees)
    for (const auto& [text, p] : tree.emitted) emitted[text] += p;
  const std::size_t tokens = std::size_t(depth_of(c)) + 1;
  for (const auto& [text, p] : emitted) {
    std::vector<Token> t = text;
    continue_by_target(c, tokens, p, t, continued);
  }
  std::vector<Token> none;
  continue_by_target(c, tokens, 1, none, law);
  compare(continued, law, c.name, found.asked_twice, f);
  return f;
}

Finding induced_round(const RoundCase& c, const RoundOutcomes& found, const Soundness& soundness) {
  Finding f;
  for (const auto& [tokens, tree] : found.trees) {
    EmittedLaw law = soundness.induced(tree.round);
    for (auto& [text, p] : law) p *= tree.weight;
    compare(tree.emitted, law, c.name + ", tree " + sequence(tokens), found.asked_twice, f);
  }
  return f;
}

}  // namespace

Finding prefers_probable(const Subject& subject) {
  Finding f{.what = subject.configs.verifier.dump()};
  ReferenceBackend backend;
  const Soundness soundness = soundness_of(subject.registries, subject.configs.verifier);
  const bool guesses = std::ranges::find(soundness.takes, Drawn::certain) != soundness.takes.end();
  const std::vector<float> sure{0, -3, -5, -1e4f};
  for (const float temperature : {0.0f, 0.6f, 1.0f}) {
    std::vector<double> accepted;
    for (std::size_t drafted = 0; drafted < sure.size(); ++drafted) {
      RoundCase c{.name = "one draft", .vocab = int(sure.size()), .warp = {.temperature = temperature}};
      c.nodes.push_back({0, guesses ? Drawn::certain : soundness.takes.at(0)});
      c.logits = [&](std::span<const Token>, bool draft) {
        if (!draft) return sure;
        std::vector<float> one(sure.size(), -1e4f);
        one[drafted] = 0;
        return one;
      };
      const RoundOutcomes found = enumerate_round(subject.registries, subject.configs.verifier, c, backend);
      c.warp.temperature = 1;
      const std::vector<double> at_temperature_1 = target_after(c, {});
      accepted.push_back(found.accepted), f.cases += found.paths;
      if (accepted.back() > accepted.front() + 1e-12)
        f.fail("at temperature " + std::to_string(temperature).substr(0, 3) + " a draft of the token " +
               std::to_string(drafted) + ", to which the target gives the probability " +
               std::to_string(at_temperature_1[drafted]) + " at temperature 1, is accepted with probability " +
               std::to_string(accepted.back()) + ", and one of the target's most probable token with " +
               std::to_string(accepted.front()) + ": a threshold is the wrong way round");
    }
  }
  return f;
}

Finding first_children_alone(const Subject& subject, const RoundCase& c) {
  Finding f{.what = subject.configs.verifier.dump() + ", " + c.name};
  RoundCase alone = c;
  int last = 0;  // the last node of the path of first children
  for (std::size_t n = 0; n < alone.nodes.size(); ++n) {
    alone.nodes[n].absent = alone.nodes[n].absent || alone.nodes[n].parent != last;
    if (!alone.nodes[n].absent) last = int(n) + 1;
  }
  ReferenceBackend backend;
  const auto emitted = [&](const RoundCase& round) {
    EmittedLaw law;
    const RoundOutcomes found = enumerate_round(subject.registries, subject.configs.verifier, round, backend);
    for (const auto& [tokens, tree] : found.trees)
      for (const auto& [text, p] : tree.emitted) law[text] += p;
    f.cases += found.paths;
    return law;
  };
  compare(emitted(c), emitted(alone), c.name,
          ", where all nodes but first children are absent; Soundness::first_children says that they are not judged",
          f);
  return f;
}

Finding one_round(const Subject& subject, const RoundCase& c) {
  ReferenceBackend backend;
  const Soundness soundness = soundness_of(subject.registries, subject.configs.verifier);
  const RoundOutcomes found = enumerate_round(subject.registries, subject.configs.verifier, c, backend);
  Finding f = soundness.induced ? induced_round(c, found, soundness) : exact_round(c, found);
  f.what = subject.configs.verifier.dump() + ", " + c.name + (f.what.empty() ? "" : ": " + f.what);
  f.cases = found.paths;
  return f;
}

namespace {

// A sum of bounded numbers whose mean should be 0.
struct Score {
  double sum = 0, variance = 0, most = 0;
  void add(double deviation, double expected_square, double bound) {
    sum += deviation, variance += expected_square, most = std::max(most, bound);
  }
  // Bernstein's bound of the probability that the sum is so far from 0.
  double p_value() const {
    return sum == 0 ? 1 : std::min(1.0, 2 * std::exp(-sum * sum / (2 * (variance + most * std::abs(sum) / 3))));
  }
};

// A function of tokens by its values, less its mean under p.
struct Centered {
  double mean = 0, variance = 0;
  template <class F> Centered(const std::vector<double>& p, const F& f) {
    for (std::size_t x = 0; x < p.size(); ++x) mean += p[x] * f(x);
    for (std::size_t x = 0; x < p.size(); ++x) variance += p[x] * (f(x) - mean) * (f(x) - mean);
  }
};

class Scores {
 public:
  explicit Scores(const RoundCase& c) : c_(c) {}

  // False if a token was emitted that the target never emits.
  bool add(const std::vector<Token>& emitted) {
    constexpr double kMost = 4;
    double before = 0;  // the score of the level before
    for (std::size_t level = 0; level < emitted.size(); ++level) {
      const auto path = std::span(emitted).first(level);
      const std::vector<double> p = target_after(c_, path), q = draft_after(c_, path);
      const std::size_t token = std::size_t(emitted[level]);
      if (p[token] == 0) return false;
      const auto ratio = [&](std::size_t x) { return p[x] > 0 ? std::min(q[x] / p[x], kMost) : 0; };
      const auto index = [&](std::size_t x) { return double(x) / double(p.size()); };
      const Centered by_ratio(p, ratio), by_index(p, index);
      const double deviation = ratio(token) - by_ratio.mean;
      total_.add(deviation, by_ratio.variance, kMost * double(emitted.size()));
      scores_[{level, "q / p"}].add(deviation, by_ratio.variance, kMost);
      scores_[{level, "index"}].add(index(token) - by_index.mean, by_index.variance, 1);
      if (level > 0)
        scores_[{level, "q / p of two levels"}].add(before * deviation, before * before * by_ratio.variance,
                                                    kMost * kMost);
      before = deviation;
    }
    return true;
  }

  void judge(double level, Finding& f) const {
    const double each = level / double(scores_.size() + 1);
    if (total_.p_value() < each) f.fail("the score q / p of all levels is off: " + text_of(total_));
    for (const auto& [what, score] : scores_)
      if (score.p_value() < each)
        f.fail("the score " + what.second + " of level " + std::to_string(what.first + 1) +
               " is off: " + text_of(score));
  }

 private:
  static std::string text_of(const Score& s) {
    return "sum " + std::to_string(s.sum) + ", deviation " + std::to_string(std::sqrt(s.variance)) +
           ", probability at most " + std::to_string(s.p_value());
  }

  const RoundCase& c_;
  Score total_;
  std::map<std::pair<std::size_t, std::string>, Score> scores_;
};

}  // namespace

Finding scored_round(const Subject& subject, const RoundCase& c, long samples, double level) {
  ReferenceBackend backend;
  Finding f{.what = subject.configs.verifier.dump() + ", " + c.name, .cases = samples};
  Scores scores(c);
  sample_rounds(subject.registries, subject.configs.verifier, c, backend, samples,
                [&](const std::vector<Token>& emitted) {
                  if (f.holds && !scores.add(emitted))
                    f.fail("a token was emitted that the target never emits: " + sequence(emitted));
                });
  scores.judge(level, f);
  return f;
}

Finding sampled_round(const Subject& subject, const RoundCase& c, long samples, double level) {
  ReferenceBackend backend;
  const Soundness soundness = soundness_of(subject.registries, subject.configs.verifier);
  const RoundSamples found = sample_round(subject.registries, subject.configs.verifier, c, backend, samples);
  const EmittedLaw induced = soundness.induced(found.round);
  std::vector<long> counts;
  std::vector<double> law;
  long counted = 0;
  for (const auto& [text, p] : induced) {
    const auto at = found.emitted.find(text);
    counts.push_back(at == found.emitted.end() ? 0 : at->second), law.push_back(p);
    counted += counts.back();
  }
  counts.push_back(samples - counted), law.push_back(0);  // what the stated distribution never emits
  const ChiSquare result = chi_square(counts, law);
  Finding f{.what = subject.configs.verifier.dump() + ", " + c.name, .cases = samples};
  if (result.p_value < level)
    f.fail(c.name + ": a chi-square of " + std::to_string(samples) +
           " rounds against the induced distribution gives p = " + std::to_string(result.p_value));
  return f;
}

}  // namespace foretoken::conformance
