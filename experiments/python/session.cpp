#include "experiments/python/session.h"

#include <chrono>
#include <utility>

#include "experiments/session/run_document.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

constexpr const char* kRun = "the engine's run";

// Prompts come with the calls.
json without_prompts(json document) {
  if (document.is_object() && document.contains("base") && document.contains("axes"))
    throw Error("an engine is made of one run, and this document is a sweep of several; give what is under its 'base'");
  if (!document.is_object()) return document;
  json& workload = document["workload"];
  if (!workload.is_null() && !workload.is_object())
    throw Error(std::string(kRun) + ": '/workload' must be an object, not " + shown(workload));
  workload["prompts"] = "(the prompts of each call)";
  return document;
}

}  // namespace

std::optional<OutputRound> OutputStream::next() {
  if (finished_) return {};
  const std::optional<SequenceReport> report = stream_.next();
  OutputRound round;
  if (report) {
    counts_.rounds += report->judged, counts_.drafted += report->drafted;
    counts_.tested += report->tested(), counts_.accepted += report->accepted;
    round = {report->emitted, text_.push(report->emitted), report->drafted, report->accepted};
  }
  finished_ = !report || report->finish != Finish::running;
  if (finished_) round.text += text_.finish();
  return round;
}

Session::Session(const json& document, const Registries& registries, const std::filesystem::path& beside)
    : beside_(beside), bench_(registries) {
  bench_.load_plugins(document, beside_);
  run_ = complete_run(without_prompts(document), bench_.registries(), kRun);
  tokenizer_ = bench_.tokenizer(target_of(run_), beside_);
  engine_ = bench_.engine(run_, Side::speculative, beside_);
  target_ = engine_->target().info();
  loop_ =
      std::make_shared<EngineLoop>(*engine_, EngineLoopOptions{.after_step = [this](const StepReport& r) { note(r); }});
}

std::shared_ptr<const Session::Form> Session::form(const json& changes) const {
  json run = run_;
  for (const auto& [group, options] : changes.items())
    for (const auto& [name, value] : options.items())
      if (!value.is_null()) run[group][name] = value;
  run = complete_run(run, bench_.registries(), "the call");
  auto chat = chat_of(run, beside_);
  return std::make_shared<const Form>(Form{std::move(run), std::move(chat)});
}

std::vector<Token> Session::encode(const Form& form, const std::string& text) const {
  return encoded_prompt(form.run, *tokenizer_, form.chat, text);
}

std::unique_ptr<OutputStream> Session::submit(const Form& form, const Asked& asked) {
  const auto* text = std::get_if<std::string>(&asked.prompt);
  Request request = request_of(form.run, target_, tokenizer_, text ? form.chat : std::nullopt,
                               Prompt{.number = asked.number, .text = text ? *text : "", .category = {}}, asked.sample);
  if (!text) request.prompt = std::get<std::vector<Token>>(asked.prompt);
  const int prompt_tokens = int(request.prompt.size());
  std::shared_ptr<EngineLoop> loop;
  {
    const std::lock_guard lock(closing_);
    loop = loop_;
  }
  if (!loop) throw Error("the engine is closed, so it takes no prompts; make another");
  auto stream = loop->try_submit(std::move(request), asked.like ? &asked.like->stream() : nullptr);
  if (!stream) return nullptr;
  return std::make_unique<OutputStream>(std::move(*stream), tokenizer_, prompt_tokens);
}

void Session::note(const StepReport& report) {
  if (report.finished.empty()) return;
  std::vector<std::string> sentences;
  const auto hear = [&](const auto& say) {
    std::string sentence;
    try {
      sentence = say();
    } catch (const std::exception& e) {  // of a drafter from a plugin: it fails no request
      sentence = e.what();
    }
    if (!sentence.empty()) sentences.push_back(std::move(sentence));
  };
  hear([&] { return engine_->doubt(); });
  hear([&] { return engine_->notice(); });
  const std::lock_guard lock(mutex_);
  notices_ = std::move(sentences);
}

std::vector<std::string> Session::notices() const {
  const std::lock_guard lock(mutex_);
  return notices_;
}

bool Session::close(double seconds) {
  const std::lock_guard lock(closing_);
  if (loop_) closed_ = std::async(std::launch::async, [loop = std::move(loop_)]() mutable { loop.reset(); });
  return !closed_.valid() || closed_.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
}

}  // namespace foretoken
