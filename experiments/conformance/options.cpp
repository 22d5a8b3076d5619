#include <cmath>

#include "experiments/conformance/components.h"
#include "experiments/conformance/laws.h"
#include "experiments/conformance/table_model.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

const TableModel::Options kTarget{.vocab = 4, .order = 2, .seed = 17, .impossible = 0.1};
const Sampling kPlain{.temperature = 1};

// The engine's refusal of a request with this option; empty if it accepts it.
std::string refusal_of(const Subject& subject, const Sampling& sampling) {
  ReferenceBackend backend;
  const Models models = table_models(kTarget);
  Engine engine(backend, models.target, subject.registries, subject.configs,
                {.batch = 1, .step_rows = 64, .page_rows = 2, .pages = 64}, models.load);
  try {
    engine.submit({{0, 1}, {}, sampling, 1, {}});
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Whether the option changes the distribution after some prompt of one token and one generated token.
bool changes(const Sampling& sampling) {
  const TableModel target(kTarget);
  for (Token a = 0; a < kTarget.vocab; ++a)
    for (Token b = 0; b < kTarget.vocab; ++b) {
      const std::vector<Token> context{a, b};
      const auto with = target_distribution(target, context, 1, sampling),
                 without = target_distribution(target, context, 1, kPlain);
      for (std::size_t x = 0; x < with.size(); ++x)
        if (std::abs(with[x] - without[x]) > 0.01) return true;
    }
  return false;
}

// Samples are enumerated jointly, so with fewer tokens and a smaller vocabulary.
ExactCase case_of(const SamplingOption& option, const Tokens& prompt, long most_ways) {
  ExactCase c{.target = kTarget,
              .prompts = {prompt},
              .tokens = 3,
              .max_new_tokens = 4,
              .scenario = {.sampling = option.sampling},
              .at_once = 16};
  c.stop = option.stop, c.most_ways = most_ways;
  if (option.samples > 1)
    c.target.vocab = 2, c.prompts.assign(std::size_t(option.samples), {1, 1, 0, Token(prompt.size() % 2)}),
    c.samples = true, c.tokens = 2;
  return c;
}

// Equal seeds give equal outputs, another seed gives other outputs.
Finding seeds_name_the_draws(const Subject& subject) {
  Finding f{.what = subject.text()};
  ReferenceBackend backend;
  const auto requests = random_requests(6, kTarget.vocab, 6, 24, 1);
  const auto texts = [&](std::uint64_t seed) {
    const RunOutcome outcome = run_scenario(
        {subject, {.sampling = {.temperature = 1, .seed = seed}}, backend, table_models(kTarget), requests});
    f.cases += long(outcome.outputs.size());
    f.add(outcome);
    return outcome.outputs;
  };
  const auto first = texts(1), again = texts(1), other = texts(2);
  if (first != again) f.fail("one seed gave two outputs");
  if (first == other) f.fail("two seeds gave one output");
  return f;
}

// The log-probability of every emitted token, by the model's distribution or by the sampled one.
Finding logprobs_are_the_laws(const Subject& subject, bool warped) {
  Finding f{.what = subject.text()};
  ReferenceBackend backend;
  const TableModel target(kTarget);
  Sampling sampling = talkative(0.8f);
  sampling.logprobs = true, sampling.warped_logprobs = warped, sampling.top_k = 3;
  const auto compare = [&](Engine&, const StepReport& report, std::span<const Sequence* const>) {
    for (const Sequence& s : report.finished)
      for (int i = s.prompt_length; i < s.length(); ++i, ++f.cases) {
        const auto context = std::span(s.tokens).first(std::size_t(i));
        const auto law = warped ? target_distribution(target, context, s.prompt_length, sampling)
                                : target.distribution(context, {.temperature = 1});
        const double p = law[std::size_t(s.tokens[std::size_t(i)])];
        const double off = std::abs(double(s.logprobs.at(std::size_t(i - s.prompt_length))) - std::log(p));
        if (!(off < 1e-5))
          f.fail("the log-probability of token " + std::to_string(i) + " is off by " + std::to_string(off));
      }
  };
  f.add(run_scenario(
      {subject, {.sampling = sampling}, backend, table_models(kTarget), random_requests(6, kTarget.vocab, 6, 24, 1)},
      compare));
  return f;
}

}  // namespace

Sampling talkative(float temperature) {
  return {.temperature = temperature,
          .repetition_penalty = 1.3f,
          .frequency_penalty = 0.3f,
          .presence_penalty = 0.4f,
          .logit_bias = {{2, -0.8f}, {0, 0.5f}}};
}

namespace {

// Token 1 never follows token 2, and after two times token 0 comes another one. States: 1 behind token 2, 2 and 3
// behind one and two times token 0.
class SmallConstraint final : public Constraint {
 public:
  State start() const override { return 0; }
  State after(State state, Token token) const override {
    if (state == kBroken || (state == 1 && token == 1) || (state == 3 && token == 0)) return kBroken;
    if (token == 0) return state == 2 ? 3 : 2;
    return token == 2 ? 1 : 0;
  }
  bool allowed(State state, std::span<std::uint32_t> allowed) const override {
    std::ranges::fill(allowed, 0);
    for (Token t = 0; t < kTarget.vocab && !allowed.empty(); ++t)
      if (after(state, t) != kBroken) allowed[std::size_t(t) / 32] |= std::uint32_t(1) << (t % 32);
    return state != kBroken;
  }
};

const std::vector<SamplingOption> kOptions = {
    {"temperature", "temperature 0", {.temperature = 0}},
    {"temperature", "temperature 0.6", {.temperature = 0.6f}},
    {"temperature", "temperature 1.7", {.temperature = 1.7f}},
    {"top_k", "top_k 2", {.temperature = 1, .top_k = 2}},
    {"top_p", "top_p 0.7", {.temperature = 1, .top_p = 0.7f}},
    {"min_p", "min_p 0.3", {.temperature = 1, .min_p = 0.3f}},
    {"repetition_penalty", "repetition_penalty 1.5", {.temperature = 1, .repetition_penalty = 1.5f}},
    {"repetition_penalty", "repetition_penalty 0.6", {.temperature = 0.8f, .repetition_penalty = 0.6f}},
    {"frequency_penalty", "frequency_penalty 0.7", {.temperature = 1, .frequency_penalty = 0.7f}},
    {"frequency_penalty", "frequency_penalty -0.4", {.temperature = 1, .frequency_penalty = -0.4f}},
    {"presence_penalty", "presence_penalty 1.2", {.temperature = 1, .presence_penalty = 1.2f}},
    {"logit_bias", "logit_bias of two tokens", {.temperature = 1, .logit_bias = {{1, 1.5f}, {3, -100}}}},
    {"logit_bias", "a forbidden token, temperature 100", {.temperature = 100, .logit_bias = {{3, -100}}}},
    {"response_format", "a constraint", {.temperature = 1, .constraint = std::make_shared<SmallConstraint>()}},
    {"response_format",
     "a constraint, greedy, with penalties",
     {.temperature = 0, .repetition_penalty = 1.5f, .constraint = std::make_shared<SmallConstraint>()}},
    {"stop", "a stop sequence of two tokens", {.temperature = 1}, 1, {1, 0}},
    {"samples", "2 samples", {.temperature = 1}, 2},
    {"seed", "seed", {.temperature = 1}, 1, {}, seeds_name_the_draws},
    {"logprobs",
     "log-probabilities",
     {.temperature = 1, .logprobs = true},
     1,
     {},
     [](const Subject& s) { return logprobs_are_the_laws(s, false); }},
    {"warped_logprobs",
     "log-probabilities of the warped distribution",
     {.temperature = 1, .logprobs = true, .warped_logprobs = true},
     1,
     {},
     [](const Subject& s) { return logprobs_are_the_laws(s, true); }},
    {"",
     "all at once",
     {.temperature = 0.9f,
      .top_k = 3,
      .top_p = 0.8f,
      .min_p = 0.1f,
      .repetition_penalty = 1.3f,
      .frequency_penalty = 0.3f,
      .presence_penalty = 0.4f,
      .logit_bias = {{2, -0.8f}, {0, 0.5f}}}},
    {"", "all penalties, greedy", talkative(0)},
};

}  // namespace

const std::vector<SamplingOption>& sampling_options() { return kOptions; }

OptionFinding exact_or_refused(const Subject& subject, const SamplingOption& option, long most_ways) {
  OptionFinding f;
  f.what = subject.text() + ", " + option.text;
  f.refusal = refusal_of(subject, option.sampling);
  ++f.seen[f.refusal.empty() ? "exact" : "refused"];
  if (!f.refusal.empty()) return f;
  if (option.shown) {
    static_cast<Finding&>(f) = option.shown(subject);
    ++f.seen["exact"];
    return f;
  }
  for (const Tokens& prompt : {Tokens{0}, Tokens{3, 1, 0, 3, 1}}) {
    const Finding e = exact(subject, case_of(option, prompt, most_ways));
    if (!e.holds) f.fail(option.text + " is neither exact nor refused: " + e.why);
    for (const auto& [what, n] : e.seen) f.seen[what] += n;
    if (e.cut_to > 0) f.cut_to = f.cut_to > 0 ? std::min(f.cut_to, e.cut_to) : e.cut_to;
    f.measure = std::max(f.measure, e.measure), f.cases += e.cases, f.accepted += e.accepted, f.rejected += e.rejected;
  }
  if (option.samples > 1) {
    if (!f.seen.contains("prefix rows")) f.fail("the samples share no page of their prompt");
  } else if (option.stop.empty() && !changes(option.sampling))
    f.fail(option.text + " changes no distribution of this scenario, so nothing was shown");
  return f;
}

namespace {

using nlohmann::json;

struct Column {
  std::string title;
  json drafter;
};

// One config of every drafter, and trees of random shapes.
std::vector<Column> columns(const Registries& registries) {
  std::vector<Column> all;
  for (const json& config : configurations(registries.drafters))
    if (all.empty() || all.back().drafter["name"] != config["name"])
      all.push_back({"`" + config["name"].get<std::string>() + "`", config});
  for (const char* kinds : {"certain", "independent"})
    all.push_back({std::string("trees, ") + kinds, random_tree(3, kinds)});
  return all;
}

std::string line(const std::vector<std::string>& cells) {
  std::string s = "|";
  for (const std::string& cell : cells) s += " " + cell + " |";
  return s + "\n";
}

// The number of a message; a new message is appended to `notes`.
std::string note(const std::string& sentence, std::vector<std::string>& notes) {
  for (std::size_t i = 0; i < notes.size(); ++i)
    if (notes[i] == sentence) return "refused (" + std::to_string(i + 1) + ")";
  notes.push_back(sentence);
  return "refused (" + std::to_string(notes.size()) + ")";
}

std::string cell(const Registries& registries, const Column& column, const json& verifier, const SamplingOption& option,
                 std::vector<std::string>& notes) {
  if (!sound(registries, column.drafter, verifier)) return "unsound pair";
  const Subject subject{registries, {column.drafter, {{"name", "fixed"}, {"length", 2}}, verifier}};
  const OptionFinding f = exact_or_refused(subject, option, 500);
  if (!f.holds) throw Error(f.what);
  return f.refusal.empty() ? "exact" : note(f.refusal, notes);
}

}  // namespace

std::string option_tables(const Registries& plain) {
  const Registries registries = with_scripted(plain);
  const std::vector<Column> drafters = columns(plain);
  std::vector<std::string> notes;
  std::string text;
  for (const std::string& name : plain.verifiers.names()) {
    const json verifier = plain.verifiers.complete({{"name", name}});
    const Soundness soundness = soundness_of(plain, verifier);
    text += "## `" + name + "`\n\n";
    if (!soundness.exact()) {
      text += "Lossy: every option is part of the distribution that it refers to.\n\n";
      continue;
    }
    std::vector<std::string> titles{"option"};
    for (const Column& c : drafters) titles.push_back(c.title);
    text += line(titles) + line(std::vector<std::string>(titles.size(), "---"));
    for (const SamplingOption& option : sampling_options()) {
      std::vector<std::string> cells{option.text};
      for (const Column& c : drafters) cells.push_back(cell(registries, c, verifier, option, notes));
      text += line(cells);
    }
    text += "\n";
  }
  for (std::size_t i = 0; i < notes.size(); ++i) text += std::to_string(i + 1) + ". " + notes[i] + "\n";
  return text;
}

}  // namespace foretoken::conformance
