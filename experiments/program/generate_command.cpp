// The options of `foretoken generate`: each sets a key of a run document.
#include <algorithm>
#include <memory>

#include "experiments/program/commands.h"
#include "experiments/program/generate.h"
#include "experiments/sweep/sweep.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

struct GenerateFlags {
  GenerateOptions options;
  std::string model, draft, drafter, date, verifier = "speculative_sampling", device = "auto";
  std::vector<std::string> set;
  int length = 4;
  bool fixes_length = false;  // --length was given
  int max_new_tokens = 128, top_k = 0, threads = 0;
  std::uint64_t seed = 1;
  double temperature = 0, top_p = 1, min_p = 0, repetition = 1, frequency = 0, presence = 0;
  std::vector<std::string> biases, stops;
  int samples = 1;
  bool ignore_eos = false, logprobs = false;
};

// "17=-100": a token and its bias.
json biases_of(const std::vector<std::string>& given) {
  json biases = json::object();
  for (const std::string& g : given) {
    const std::size_t at = g.find('=');
    const json bias = at == std::string::npos ? json() : json::parse(g.substr(at + 1), nullptr, false);
    if (!bias.is_number())
      throw Error("--logit-bias " + g + ": write a token id and a number, as in --logit-bias 17=-100");
    if (const std::string token = g.substr(0, at); !biases.emplace(token, bias).second)
      throw Error("--logit-bias names the token " + token + " twice; give it one bias");
  }
  return biases;
}

json sampling_of(const GenerateFlags& g) {
  return {{"temperature", g.temperature},
          {"top_k", g.top_k},
          {"top_p", g.top_p},
          {"min_p", g.min_p},
          {"repetition_penalty", g.repetition},
          {"frequency_penalty", g.frequency},
          {"presence_penalty", g.presence},
          {"logit_bias", biases_of(g.biases)},
          {"samples", g.samples},
          {"seed", g.seed},
          {"logprobs", g.logprobs}};
}

json run_of(const GenerateFlags& g) {
  json drafter =
      component_config(g.drafter.empty() ? g.draft.empty() ? "none" : "draft_model" : g.drafter, "--drafter");
  if (!g.draft.empty() && drafter["name"] != "draft_model")
    throw Error("--draft DIR selects the drafter draft_model and excludes --drafter " + g.drafter +
                "; leave one of them out");
  if (!g.draft.empty()) drafter["model"] = g.draft;
  json policy = json::object();  // without --length the default of the policy that --set names
  if (g.fixes_length) policy["length"] = g.length;
  json run = {{"target", {{"model", g.model}}},
              {"drafter", drafter},
              {"policy", policy},
              {"verifier", component_config(g.verifier, "--verifier")},
              {"sampling", sampling_of(g)},
              {"engine", {{"batch", std::max(1, g.samples)}, {"device", g.device}, {"threads", g.threads}}},
              {"workload", {{"max_new_tokens", g.max_new_tokens}, {"stop", g.stops}, {"ignore_eos", g.ignore_eos}}}};
  if (!g.date.empty()) run["workload"]["date"] = g.date;
  for (const auto& s : g.set) put_setting(run, s, "--set");
  return run;
}

void add_sampling(CLI::App& c, GenerateFlags& g) {
  c.add_option("--temperature", g.temperature, "0: greedy")->capture_default_str();
  c.add_option("--top-k", g.top_k, "keep the k most probable tokens; 0: all")->capture_default_str();
  c.add_option("--top-p", g.top_p, "keep the most probable tokens up to this probability")->capture_default_str();
  c.add_option("--min-p", g.min_p, "drop tokens below this share of the most probable token's probability")
      ->capture_default_str();
  c.add_option("--repetition-penalty", g.repetition, "for tokens of the prompt or the output; 1: off")
      ->capture_default_str();
  c.add_option("--frequency-penalty", g.frequency, "for every occurrence of a token in the output")
      ->capture_default_str();
  c.add_option("--presence-penalty", g.presence, "for tokens that the output contains")->capture_default_str();
  add_repeatable(c, "--logit-bias", g.biases, "TOKEN=BIAS, by id; -100 forbids a token at every temperature");
  add_repeatable(c, "--stop", g.stops, "a string that ends the output");
  c.add_option("--samples", g.samples, "outputs of the prompt, each with its own draws")->capture_default_str();
  c.add_option("--seed", g.seed, "seed of the draws")->capture_default_str();
  c.add_flag("--logprobs", g.logprobs, "also print the output's log-probability");
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  const auto g = std::make_shared<GenerateFlags>();
  CLI::App* c = app.add_subcommand("generate", "continue a prompt and mark accepted draft tokens");
  c->add_option("--model", g->model, "Hugging Face directory or GGUF file of the target")->required();
  c->add_option("--prompt", g->options.prompt, "the prompt; -: from standard input")->required();
  c->add_option("--draft", g->draft, "Hugging Face directory or GGUF file of a draft model");
  c->add_option("--drafter", g->drafter, "another drafter (foretoken list): a name, or JSON with options");
  c->add_option("--length", g->length, "tokens drafted in each round")->capture_default_str();
  c->add_option("--verifier", g->verifier, "verifier (foretoken list): likewise")->capture_default_str();
  c->add_option("--max-new-tokens", g->max_new_tokens, "the most tokens generated")->capture_default_str();
  add_sampling(*c, *g);
  c->add_option("--device", g->device, "auto, cpu, reference or cuda")->capture_default_str();
  c->add_option("--threads", g->threads, "0: as many as the machine has")->capture_default_str();
  add_plugins(*c, g->options.plugins);
  c->add_option("--date", g->date, "YYYY-MM-DD, the day that a chat template takes for today (default: 2024-07-26)");
  add_repeatable(*c, "--set", g->set, "/POINTER=VALUE, any other key of a run (foretoken keys); may be given again");
  c->add_flag("--ignore-eos", g->ignore_eos, "continue after the end-of-text token");
  CLI::Option* const marks =
      c->add_flag("--marks", g->options.marks,
                  "brackets around accepted draft tokens; [ ] and \\ of the output are written with a \\ before them");
  c->add_flag("--json", g->options.json, "print one JSON object: text, tokens, counts, times, and the complete run")
      ->excludes(marks);
  c->callback([g, c, &action] {
    g->fixes_length = c->count("--length") > 0;
    action = [g] {
      g->options.run = run_of(*g);
      return generate(g->options);
    };
  });
}

}  // namespace foretoken
