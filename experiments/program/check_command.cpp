// `foretoken check`: the laws of correctness, run on built-in and plugins' drafters, policies and verifiers.
#include <algorithm>
#include <set>

#include <spdlog/fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "experiments/program/commands.h"
#include "experiments/report/check_report.h"
#include "experiments/report/terminal.h"
#include "experiments/session/check_environment.h"
#include "experiments/sweep/workload.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

using conformance::Candidate, conformance::CheckReport, conformance::Choice, conformance::Prepared;

struct CheckFlags {
  std::string drafter, policy, verifier, options;
  std::vector<std::string> plugins, laws;
  double seconds = 0;
  int threads = 2;
  bool details = false, json = false;
};

template <class T> std::vector<std::string> added(const Registry<T>& now, const Registry<T>& before) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : now.entries())
    if (!before.entries().contains(name)) names.push_back(name);
  return names;
}

// The components chosen by name, else all that plugins registered, else all.
std::vector<Choice> choices(const CheckFlags& g, const Registries& before, const Registries& registries) {
  Choice named{registries, component_config(g.drafter, "--drafter"), component_config(g.policy, "--policy"),
               component_config(g.verifier, "--verifier")};
  if (!named.drafter.is_null() || !named.policy.is_null() || !named.verifier.is_null()) return {named};
  std::vector<Choice> all;
  const auto one = [&](json Choice::* component, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      Choice c{registries, nullptr, nullptr, nullptr};
      c.*component = {{"name", name}};
      all.push_back(c);
    }
  };
  one(&Choice::drafter, added(registries.drafters, before.drafters));
  one(&Choice::policy, added(registries.policies, before.policies));
  one(&Choice::verifier, added(registries.verifiers, before.verifiers));
  return all.empty() ? std::vector<Choice>{named} : all;
}

// --options belong to the one drafter, policy or verifier that is checked.
void give_options(const std::string& text, std::vector<Choice>& all) {
  if (text.empty()) return;
  const json options = json_object(text, "--options");
  std::vector<json*> chosen;
  for (Choice& c : all)
    for (json* component : {&c.drafter, &c.policy, &c.verifier})
      if (!component->is_null()) chosen.push_back(component);
  if (chosen.size() != 1)
    throw Error("--options are for one component, not for " + std::to_string(chosen.size()) +
                "; write them beside the name, as --drafter '{\"name\": \"ngram\", \"longest\": 2}'");
  chosen.front()->update(options);
}

// The command that repeats this check.
std::string command_of(const CheckFlags& g) {
  std::string command = "foretoken check";
  for (const std::string& p : g.plugins) command += " --plugin " + shell_word(p);
  for (const auto& [flag, value] : {std::pair{" --drafter ", g.drafter},
                                    {" --policy ", g.policy},
                                    {" --verifier ", g.verifier},
                                    {" --options ", g.options}})
    if (!value.empty()) command += flag + shell_word(value);
  if (!g.laws.empty()) command += " --laws " + shell_word(fmt::format("{}", fmt::join(g.laws, ",")));
  if (g.seconds > 0) command += fmt::format(" --seconds {:g}", g.seconds);
  return command + " --threads " + std::to_string(g.threads);
}

Prepared prepared(const CheckFlags& g) {
  const Registries registries = with_plugins(g.plugins);
  std::vector<Choice> asked = choices(g, with_plugins({}), registries);
  give_options(g.options, asked);
  Prepared p{{}, check_environment(), {}, registries.plugins, {}};
  std::set<std::string> known, absent;
  for (const Choice& choice : asked)
    for (Candidate& c : candidates(choice))
      if (known.insert(c.subject.text()).second) p.candidates.push_back(std::move(c));
  for (const Choice& choice : asked) {
    for (const std::string& sentence : left_out(choice)) absent.insert(sentence);
    for (std::string& sentence : pairings(choice)) p.pairings.push_back(std::move(sentence));
  }
  p.left_out.assign(absent.begin(), absent.end());
  return p;
}

int run_check(CheckFlags& g) {
  const CheckReport report = conformance::check([&g] { return prepared(g); }, {g.threads, g.seconds, g.laws});
  const Question question{command_of(g), report.plugins, g.laws};
  print(g.json ? check_json(report, question).dump(2) + "\n"
               : check_text(report, question, g.details, terminal_columns(STDOUT_FILENO)));
  if (g.json)
    for (const std::string& sentence : report.sentences) spdlog::error("{}", sentence);
  return report.holds() ? 0 : 1;
}

}  // namespace

void add_check(Commands& all) {
  const auto [c, g] =
      all.add_subcommand("check", "run the laws of correctness on drafters, policies and verifiers", run_check);
  add_repeatable(c, "--plugin", g.plugins, "a shared library; what it registers is checked; may be given again");
  c.add_option("--drafter", g.drafter, "a name, or JSON with options (default: all that the verifier accepts)");
  c.add_option("--policy", g.policy, "likewise (default: fixed lengths set by each scenario, and all others once)");
  c.add_option("--verifier", g.verifier, "likewise (default: all that are sound)");
  c.add_option("--options", g.options, "JSON, options of the one component that is checked");
  add_list_option(c, "--laws", g.laws, "only these (default: all)");
  add_shown(c, "--seconds", g.seconds,
            "of a processor: no scenario starts later; 0: 60, or 1800 for more than 15 combinations")
      ->check(number_within(0, 1e6));
  add_shown(c, "--threads", g.threads, "scenarios run at once")->check(CLI::Range(1, 256));
  c.add_flag("--details", g.details, "a line for every combination");
  c.add_flag("--json", g.json, "print the report as JSON");
}

}  // namespace foretoken
