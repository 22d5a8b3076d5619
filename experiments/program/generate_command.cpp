// `foretoken generate`: continues one prompt, streams the output and marks accepted draft tokens. Options set keys of a
// run document.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "experiments/program/commands.h"
#include "experiments/report/terminal.h"
#include "experiments/session/interrupt.h"
#include "experiments/session/run_document.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/measure_recorder.h"
#include "experiments/sweep/sweep.h"
#include "framework/text/regular_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

struct GenerateFlags {
  std::string prompt;  // "-": read from standard input
  std::vector<std::string> plugins;
  // Brackets around accepted tokens even if the output is not a terminal. The output's own are escaped: \[ \] \\ there.
  bool marks = false;
  // Instead of the output one JSON object in the end, and no line of figures (experiments/results.md).
  bool as_json = false;
  std::string model, draft, drafter, date, verifier = "speculative_sampling";
  std::vector<std::string> set, biases, stops;
  int length = 4;
  bool ignore_eos = false, logprobs = false;
  CLI::App* command = nullptr;
  std::vector<std::function<void(json& run)>> keys{};  // put values into a run
};

// An option that is the key of its name in a part of the run; `value`: where it is not given.
template <class T> void add_key(CLI::App& c, GenerateFlags& g, const std::string& name, T value, const char* meaning,
                                const char* part = "sampling") {
  const auto given = std::make_shared<T>(std::move(value));
  add_shown(c, name, *given, meaning);
  std::string key = name.substr(2);
  std::ranges::replace(key, '-', '_');
  g.keys.emplace_back([given, part, key](json& run) { run[part][key] = *given; });
}

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

json run_of(const GenerateFlags& g) {
  json drafter =
      component_config(g.drafter.empty() ? g.draft.empty() ? "none" : "draft_model" : g.drafter, "--drafter");
  if (!g.draft.empty() && drafter["name"] != "draft_model")
    throw Error("--draft DIR selects the drafter draft_model and excludes --drafter " + g.drafter +
                "; leave one of them out");
  if (!g.draft.empty()) drafter["model"] = g.draft;
  json policy = json::object();  // without --length the default of the policy that --set names
  if (g.command->count("--length") > 0) policy["length"] = g.length;
  json run = {{"target", {{"model", g.model}}},
              {"drafter", drafter},
              {"policy", policy},
              {"verifier", component_config(g.verifier, "--verifier")},
              {"sampling", {{"logit_bias", biases_of(g.biases)}, {"logprobs", g.logprobs}}},
              {"workload", {{"stop", g.stops}, {"ignore_eos", g.ignore_eos}}}};
  for (const auto& put : g.keys) put(run);
  run["engine"]["batch"] = std::max(1, run["sampling"]["samples"].get<int>());
  if (!g.date.empty()) run["workload"]["date"] = g.date;
  for (const auto& s : g.set) put_setting(run, s, "--set");
  return run;
}

// Keys of a run document that do not apply to the continuation of one prompt.
void refuse_unused(const json& run) {
  for (const char* pointer : {"/workload/prompts", "/workload/prompt_tokens", "/workload/limit", "/workload/skip",
                              "/workload/categories", "/measure"})
    if (run.contains(json::json_pointer(pointer)))
      throw Error(std::string("generate continues one prompt without measuring, so it has no use for '") + pointer +
                  "'; remove it from --set");
}

std::string read_prompt(const std::string& prompt) {
  if (prompt != "-") return prompt;
  return read_to_end(Descriptor(::dup(STDIN_FILENO)), "the prompt from standard input", "give it as --prompt TEXT");
}

// Prints accepted draft tokens marked.
class Printer {
 public:
  Printer(std::shared_ptr<const Tokenizer> tokenizer, bool marks)
      : stream_(std::move(tokenizer)), terminal_(isatty(STDOUT_FILENO) != 0), marks_(marks) {
    const bool colours = terminal_ && std::getenv("NO_COLOR") == nullptr;
    before_ = marks ? "[" : colours ? "\033[32;4m" : "";
    after_ = marks ? "]" : colours ? "\033[0m" : "";
  }

  void print(std::span<const Token> emitted, int accepted) {
    const std::size_t guessed = std::min(std::size_t(accepted), emitted.size());
    if (const std::string text = stream_.push(emitted.first(guessed)); !text.empty())
      put(before_ + shown(text) + after_);
    put(shown(stream_.push(emitted.subspan(guessed))));
  }
  void finish() { put(shown(stream_.finish()) + "\n"); }
  static void title(int sample) { put("== sample " + std::to_string(sample) + "\n"); }

 private:
  // A model may emit any text: control characters are not sent to a terminal, and text that looks like a mark is
  // escaped.
  std::string shown(const std::string& text) const {
    std::string found;
    for (const char c : terminal_ ? printable(text, "\n\t") : text) {
      if (marks_ && (c == '[' || c == ']' || c == '\\')) found += '\\';
      found += c;
    }
    return found;
  }
  static void put(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  TextStream stream_;
  bool terminal_, marks_;
  std::string before_, after_;
};

struct Figures {
  double seconds = 0, first = -1;
  long tokens = 0, rounds = 0, drafted = 0, tested = 0, accepted = 0, weighed = 0;
  double log_probability = 0;  // sum over the `weighed` tokens
  NoDraftCounts no_draft;

  void add(const Sequence& q) {
    weighed += long(q.logprobs.size());
    for (const float l : q.logprobs) log_probability += double(l);
  }
  void add(const SequenceReport& r) {
    tokens += long(r.emitted.size());
    rounds += r.judged;
    drafted += r.drafted;
    tested += r.tested();
    accepted += r.accepted;
    no_draft.add(r);
  }
  // A drafter that stops drafting is no fault, but it is slow, and nothing else shows it.
  void tell_no_draft() const {
    for (const auto& [why, remedy] :
         {std::pair(NoDraft::context, "the context of the drafter's model is full; choose one with a longer context"),
          std::pair(NoDraft::pages, "the page pool had no pages for drafts; raise /engine/memory_mib"),
          std::pair(NoDraft::rows, "steps had no rows for drafts; raise /engine/step_rows"),
          std::pair(NoDraft::policy, "the length policy asked for none"),
          std::pair(NoDraft::states, "the target had yet to compute the states that the drafter reads"),
          std::pair(NoDraft::nothing,
                    "the drafter had nothing to propose, or was less sure than the policy's confidence")})
      if (const long n = no_draft.rounds[std::size_t(why)]; n >= std::max(1L, rounds / 20))
        spdlog::info("{} of {} rounds had no draft: {}", n, rounds, remedy);
  }
  // Null where there was none.
  json first_seconds() const { return first < 0 ? json() : json(first); }
  json document() const {
    return {{"seconds", seconds},  {"first_token_seconds", first_seconds()},
            {"tokens", tokens},    {"rounds", rounds},
            {"drafted", drafted},  {"tested", tested},
            {"accepted", accepted}};
  }
  void print() const {
    std::fprintf(stderr, "foretoken: %ld tokens in %.2f s, %.1f tokens/s", tokens, seconds, double(tokens) / seconds);
    if (first >= 0) std::fprintf(stderr, ", the first after %.1f ms", 1000 * first);
    std::fprintf(stderr, "; tau %.2f tokens per target forward", rounds ? double(tokens) / double(rounds) : 0.0);
    if (drafted > 0)
      std::fprintf(stderr, "; accepted %ld of %ld drafted (%.1f %%), alpha %.2f", accepted, drafted,
                   100 * double(accepted) / double(drafted), double(accepted) / double(tested));
    if (weighed > 0)
      std::fprintf(stderr, "; log-probability %.3f, %.4f a token", log_probability, log_probability / double(weighed));
    std::fputs("\n", stderr);
  }
};

// One sample of the prompt.
struct Text {
  SequenceId id;
  int prompt_tokens;
  std::vector<SequenceReport> pieces;
  std::size_t printed = 0;  // pieces that are printed
  Printer printer;
  std::string failure{};  // why it failed; empty if it did not
  std::vector<float> logprobs{};

  void print() {
    for (; printed < pieces.size(); ++printed) printer.print(pieces[printed].emitted, pieces[printed].accepted);
  }
};

std::vector<Text> submit(Engine& engine, const json& run, const std::shared_ptr<const Tokenizer>& tokenizer,
                         const std::string& prompt, bool marks) {
  std::vector<Text> texts;
  for (std::uint64_t k = 0; k < run["sampling"]["samples"].get<std::uint64_t>(); ++k) {
    Request request = request_of(run, engine.target().info(), tokenizer, chat_of(run, ""), Prompt{0, prompt, ""}, k);
    request.sample_of = k > 0 ? texts.front().id : 0;
    const int prompt_tokens = int(request.prompt.size());
    texts.push_back({engine.submit(std::move(request)), prompt_tokens, {}, 0, Printer(tokenizer, marks)});
  }
  return texts;
}

json document_of(const Text& text, const std::shared_ptr<const Tokenizer>& tokenizer) {
  Figures figures;
  std::vector<Token> tokens;
  Finish finish = Finish::running;  // where the command was interrupted
  for (const SequenceReport& r : text.pieces) {
    figures.add(r);
    finish = r.finish;
    tokens.insert(tokens.end(), r.emitted.begin(), r.emitted.end());
  }
  TextStream stream(tokenizer);
  std::string words = stream.push(tokens);
  words += stream.finish();
  json document{{"text", words},
                {"tokens", tokens},
                {"finish", text.failure.empty() ? name_of(finish) : name_of(Finish::failed)},
                {"rounds", figures.rounds},
                {"drafted", figures.drafted},
                {"tested", figures.tested},
                {"accepted", figures.accepted}};
  if (!text.logprobs.empty()) document["logprobs"] = text.logprobs;
  if (!text.failure.empty()) document["failure"] = text.failure;
  return document;
}

void print_json(const json& run, const std::string& prompt, const std::string& promise, const std::vector<Text>& texts,
                const std::shared_ptr<const Tokenizer>& tokenizer, const Figures& figures) {
  json outputs = json::array();
  for (const Text& text : texts) outputs.push_back(document_of(text, tokenizer));
  json own = run;
  own.at("workload").erase("prompts");
  const json document{{"prompt", prompt},
                      {"prompt_tokens", texts.front().prompt_tokens},
                      {"outputs", outputs},
                      {"figures", figures.document()},
                      {"verifier_promises", promise},
                      {"run", own}};
  std::puts(document.dump(2, ' ', false, json::error_handler_t::replace).c_str());
}

void print_texts(std::vector<Text>& texts) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts.size() > 1) Printer::title(int(i) + 1);
    texts[i].print();
    texts[i].printer.finish();
  }
}

// Tokens accepted under a lossy rule are not from the target's distribution.
void tell_lossy(const std::string& verifier, const std::string& promise) {
  const std::string lossy = "lossy: ";
  if (promise.starts_with(lossy))
    spdlog::warn("the verifier {} is lossy: this text is not of the distribution of plain decoding, but of {}",
                 verifier, promise.substr(lossy.size()));
}

// Reports the failed samples; returns whether there was one. If all failed, that is an Error.
bool some_failed(const std::vector<Text>& texts) {
  const auto failed = [](const Text& t) { return !t.failure.empty(); };
  if (std::ranges::all_of(texts, failed)) throw Error(texts.front().failure);
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (failed(texts[i])) spdlog::error("sample {} failed: {}", i + 1, texts[i].failure);
  return std::ranges::any_of(texts, failed);
}

// Writes the output, or JSON, to standard output; to standard error a line for every failed sample and a line of
// figures. If all samples failed, that is an Error.
int generate(GenerateFlags& g) {
  json document = run_of(g);
  refuse_unused(document);
  Workbench bench(g.plugins);
  document["workload"]["prompts"] = "(the prompt)";
  const json run = complete_run(document, bench.registries(), "generate");
  const auto engine = bench.engine(run, Side::speculative, "");
  tell_lossy(run["verifier"]["name"], engine->soundness().promise);
  const auto tokenizer = bench.tokenizer(target_of(run), "");
  const std::string prompt = read_prompt(g.prompt);
  std::vector<Text> texts = submit(*engine, run, tokenizer, prompt, g.marks);

  Figures figures;
  watch_interrupts();
  const auto start = std::chrono::steady_clock::now();
  while (!engine->idle() && !interrupted()) {
    StepReport report = engine->step();
    figures.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (SequenceReport& r : report.sequences) {
      if (r.judged && figures.first < 0) figures.first = figures.seconds;
      figures.add(r);
      std::ranges::find(texts, r.id, &Text::id)->pieces.push_back(std::move(r));
    }
    for (const Sequence& q : report.finished) {
      figures.add(q);
      Text& text = *std::ranges::find(texts, q.id, &Text::id);
      text.failure = q.failure;
      text.logprobs = q.logprobs;
    }
    if (texts.size() == 1 && !g.as_json) texts.front().print();  // as it comes
  }
  if (!g.as_json) print_texts(texts);
  const bool failed = some_failed(texts);
  if (g.as_json)
    print_json(run, prompt, engine->soundness().promise, texts, tokenizer, figures);
  else
    figures.print();
  if (!engine->needs().proposes.empty()) figures.tell_no_draft();
  for (const std::string& sentence : {engine->doubt(), engine->notice()})
    if (!sentence.empty()) spdlog::warn("{}", sentence);
  return interrupted() ? kInterruptedExit : failed ? 1 : 0;
}

void add_sampling(CLI::App& c, GenerateFlags& g) {
  add_key(c, g, "--temperature", 0.0, "0: greedy");
  add_key(c, g, "--top-k", 0, "keep the k most probable tokens; 0: all");
  add_key(c, g, "--top-p", 1.0, "keep the most probable tokens up to this probability");
  add_key(c, g, "--min-p", 0.0, "drop tokens below this share of the most probable token's probability");
  add_key(c, g, "--repetition-penalty", 1.0, "for tokens of the prompt or the output; 1: off");
  add_key(c, g, "--frequency-penalty", 0.0, "for every occurrence of a token in the output");
  add_key(c, g, "--presence-penalty", 0.0, "for tokens that the output contains");
  add_repeatable(c, "--logit-bias", g.biases, "TOKEN=BIAS, by id; -100 forbids a token at every temperature");
  add_repeatable(c, "--stop", g.stops, "a string that ends the output");
  add_key(c, g, "--samples", 1, "outputs of the prompt, each with its own draws");
  add_key(c, g, "--seed", std::uint64_t(1), "seed of the draws");
  c.add_flag("--logprobs", g.logprobs, "also print the output's log-probability");
}

}  // namespace

void add_generate(Commands& all) {
  const auto [c, g] = all.add_subcommand("generate", "continue a prompt and mark accepted draft tokens", generate);
  g.command = &c;
  c.add_option("--model", g.model, "Hugging Face directory or GGUF file of the target")->required();
  c.add_option("--prompt", g.prompt, "the prompt; -: from standard input")->required();
  c.add_option("--draft", g.draft, "Hugging Face directory or GGUF file of a draft model");
  c.add_option("--drafter", g.drafter, "another drafter (foretoken list): a name, or JSON with options");
  add_shown(c, "--length", g.length, "tokens drafted in each round");
  add_shown(c, "--verifier", g.verifier, "verifier (foretoken list): likewise");
  add_key(c, g, "--max-new-tokens", 128, "the most tokens generated", "workload");
  add_sampling(c, g);
  add_key(c, g, "--device", std::string("auto"), "auto, cpu, reference or cuda", "engine");
  add_key(c, g, "--threads", 0, "0: as many as the machine has", "engine");
  add_plugins(c, g.plugins);
  c.add_option("--date", g.date, "YYYY-MM-DD, the day that a chat template takes for today (default: 2024-07-26)");
  add_repeatable(c, "--set", g.set, "/POINTER=VALUE, any other key of a run (foretoken keys); may be given again");
  c.add_flag("--ignore-eos", g.ignore_eos, "continue after the end-of-text token");
  CLI::Option* const marks =
      c.add_flag("--marks", g.marks,
                 "brackets around accepted draft tokens; [ ] and \\ of the output are written with a \\ before them");
  c.add_flag("--json", g.as_json, "print one JSON object: text, tokens, counts, times, and the complete run")
      ->excludes(marks);
}

}  // namespace foretoken
