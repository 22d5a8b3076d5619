#include "experiments/program/generate.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "experiments/report/terminal.h"
#include "experiments/session/interrupt.h"
#include "experiments/session/run_document.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/measure_recorder.h"
#include "framework/text/regular_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

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
    if (colours && !marks)
      before_ = "\033[32;4m", after_ = "\033[0m";
    else if (marks)
      before_ = "[", after_ = "]";
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
    tokens += long(r.emitted.size()), rounds += r.judged, drafted += r.drafted, tested += r.tested(),
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
    figures.add(r), finish = r.finish;
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

}  // namespace

int generate(const GenerateOptions& options) {
  refuse_unused(options.run);
  Workbench bench(options.plugins);
  json document = options.run;
  document["workload"]["prompts"] = "(the prompt)";
  const json run = complete_run(document, bench.registries(), "generate");
  const auto engine = bench.engine(run, Side::speculative, "");
  tell_lossy(run["verifier"]["name"], engine->soundness().promise);
  const auto tokenizer = bench.tokenizer(target_of(run), "");
  const std::string prompt = read_prompt(options.prompt);
  std::vector<Text> texts = submit(*engine, run, tokenizer, prompt, options.marks);

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
      text.failure = q.failure, text.logprobs = q.logprobs;
    }
    if (texts.size() == 1 && !options.json) texts.front().print();  // as it comes
  }
  if (!options.json) print_texts(texts);
  const bool failed = some_failed(texts);
  if (options.json)
    print_json(run, prompt, engine->soundness().promise, texts, tokenizer, figures);
  else
    figures.print();
  if (!engine->needs().proposes.empty()) figures.tell_no_draft();
  for (const std::string& sentence : {engine->doubt(), engine->notice()})
    if (!sentence.empty()) spdlog::warn("{}", sentence);
  return interrupted() ? kInterruptedExit : failed ? 1 : 0;
}

}  // namespace foretoken
