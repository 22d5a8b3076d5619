#include "experiments/serve/served_model.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "experiments/serve/api_error.h"
#include "experiments/session/response_format.h"
#include "experiments/session/run_document.h"
#include "framework/model/model_files.h"
#include "framework/text/json_file.h"
#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken::serve {

using nlohmann::json;

namespace {

constexpr const char* kServedRun = "the run to serve";

bool says(const json& document, const char* pointer) {
  const json::json_pointer key(pointer);
  return document.contains(key) && !document.at(key).is_null();
}

bool is_servable(const Engine& engine, const Request& r) {
  try {
    engine.expect_servable(r);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Prompts come with the requests, and nothing is measured.
json without_workload_prompts(json document) {
  if (!document.is_object()) return document;
  if (document.contains("base") && document.contains("axes"))
    throw Error(std::string(kServedRun) + " is a sweep of several; give one run, as what is under its 'base'");
  for (const char* pointer : {"/workload/prompts", "/workload/prompt_tokens", "/workload/limit", "/workload/skip",
                              "/workload/categories", "/workload/repeats", "/workload/rate", "/workload/rates",
                              "/workload/turns", "/sampling/samples", "/measure", "/trace"})
    if (says(document, pointer))
      throw Error(
          std::string("a server gets its prompts from its clients and measures nothing, so it has no use for '") +
          pointer + "'; remove it from the run");
  if (document.value("workload", json::object()).is_object())
    document["workload"]["prompts"] = "(the prompts of each request)";
  return document;
}

// What a body that says nothing asks for.
ApiRequest standard_of(const json& document, const json& run) {
  const json& w = run.at("workload");
  ApiRequest standard;
  standard.sampling = sampling_of(run);
  if (!says(document, "/sampling/temperature")) standard.sampling.temperature = 1;
  standard.sampling.logprobs = standard.sampling.warped_logprobs = false;  // a body asks for them
  standard.response_format = run.at("sampling").value("response_format", json());
  standard.seeded = says(document, "/sampling/seed");
  standard.stops = w.at("stop").get<std::vector<std::string>>();
  standard.ignore_eos = w.at("ignore_eos");
  return standard;
}

std::uint64_t drawn_seed() {
  thread_local std::mt19937_64 draw{std::random_device{}()};
  return std::uniform_int_distribution<std::uint64_t>(0, std::uint64_t(9e15))(draw);
}

std::string last_part(const std::string& path) {
  const std::filesystem::path given(path);
  const std::string name = (given.has_filename() ? given : given.parent_path()).filename().string();
  return replace_broken_utf8(name.empty() ? "model" : name);
}

// In bytes: a text has no fewer tokens than its bytes hold of these.
std::size_t longest_token(const Tokenizer& tokenizer) {
  std::size_t most = 1;
  for (Token t = 0; t < tokenizer.vocab(); ++t)
    most = std::max(most, tokenizer.decode_inside(std::span(&t, 1), /*special=*/true).size());
  return most;
}

ApiError busy(std::size_t waiting) {
  ApiError error(429,
                 "the server is busy: " + std::to_string(waiting) +
                     " requests are waiting, which is as many as may; try again in a second",
                 "", "queue_full");
  error.retry_after = 1;
  return error;
}

}  // namespace

void LogProbabilities::add(const Sequence& sequence, std::size_t emitted) {
  const std::lock_guard lock(mutex_);
  const std::size_t have = sequence.logprobs.size(), some = std::min(have, emitted);
  values_.insert(values_.end(), sequence.logprobs.end() - std::ptrdiff_t(some), sequence.logprobs.end());
}

std::vector<float> LogProbabilities::take(std::size_t count) {
  const std::lock_guard lock(mutex_);
  const auto end = values_.begin() + std::ptrdiff_t(std::min(count, values_.size()));
  std::vector<float> first(values_.begin(), end);
  values_.erase(values_.begin(), end);
  return first;
}

ServedModel::ServedModel(const json& document, const std::vector<std::string>& plugins,
                         const std::filesystem::path& beside, ServedModelOptions options)
    : options_(std::move(options)), bench_(plugins) {
  bench_.load_plugins(document, beside);
  run_ = complete_run(without_workload_prompts(document), bench_.registries(), kServedRun);
  standard_ = standard_of(document, run_);
  const ModelChoice choice = target_of(run_);
  name_ = last_part(choice.directory.empty() ? choice.text() : choice.directory);
  tokenizer_ = bench_.tokenizer(choice, beside);
  choose_chat(document, beside);
  registries_ = with_caps(bench_.registries(), caps_);
  engine_ = bench_.engine(run_, Side::speculative, beside, registries_);
  target_ = engine_->target().info();
  most_bytes_ = std::size_t(target_.positions) * longest_token(*tokenizer_);
  name_files(beside);
  loop_ = std::make_unique<EngineLoop>(
      *engine_, EngineLoopOptions{.waiting = options_.waiting, .after_step = options_.after_step});
}

// The model's own form, unless the run names one or none.
void ServedModel::choose_chat(const json& document, const std::filesystem::path& beside) {
  if (!options_.chat_template.empty()) {
    const ModelChoice choice = target_of(run_);
    const bool files = !choice.tokenizer_directory().empty();
    chat_ = ChatTemplate::of(read_file(options_.chat_template),
                             files ? ModelFiles::open(model_path(choice.tokenizer_directory(), beside))->marks()
                                   : nlohmann::ordered_json::object(),
                             options_.chat_template);
    chat_->encode(*tokenizer_, "x");  // an Error where it needs what this model does not have
    return;
  }
  if (says(document, "/workload/chat")) {
    chat_ = chat_of(run_, beside);
    if (chat_) chat_->encode(*tokenizer_, "x");  // an Error where it is another model's
    if (!chat_)
      no_chat_ = "this server was started with '/workload/chat': \"none\", so it serves /v1/completions alone";
    return;
  }
  json automatic = run_;
  automatic["workload"]["chat"] = "auto";
  try {
    chat_ = chat_of(automatic, beside);
  } catch (const Error& e) {
    no_chat_ = std::string(e.what()) +
               "; when the server is started a form is named with '/workload/chat', or a template given with "
               "--chat-template";
  }
}

// Every path that the run names, as it names it, where it was found, and whole.
void ServedModel::name_files(const std::filesystem::path& beside) {
  std::set<std::string> paths{beside.string(), options_.chat_template};
  const auto flat = run_.flatten();
  for (const auto& [key, value] : flat.items()) {
    if (!value.is_string() || value.get_ref<const std::string&>().find('/') == std::string::npos) continue;
    const std::string given = value;
    std::error_code ignored;
    const std::filesystem::path found = locate(given, beside);
    if (!std::filesystem::exists(found, ignored)) continue;
    paths.insert({given, found.string(), std::filesystem::weakly_canonical(found, ignored).string()});
  }
  for (const std::string& path : paths)
    if (path.find('/') != path.npos) files_.emplace_back(path, last_part(path));
  std::ranges::sort(files_, std::greater<>(), [](const auto& file) { return file.first.size(); });
}

std::string ServedModel::for_clients(std::string sentence) const {
  for (const auto& [path, name] : files_)
    for (std::size_t at = 0; (at = sentence.find(path, at)) != sentence.npos; at += name.size())
      sentence.replace(at, path.size(), name);
  return sentence;
}

// Before tokens are made of it, which takes as long as a text is.
void ServedModel::expect_room(std::size_t bytes, const char* parameter) const {
  if (bytes > most_bytes_)
    throw ApiError(400,
                   "the prompt has " + std::to_string(bytes) + " bytes, and the model's context of " +
                       std::to_string(target_.positions) + " tokens holds at most " + std::to_string(most_bytes_) +
                       "; shorten it",
                   parameter, "context_length_exceeded");
}

void ServedModel::expect_known(const std::vector<Token>& tokens) const {
  for (const Token t : tokens)  // before they are decoded
    if (t >= target_.vocab)
      throw ApiError(400,
                     "'prompt' has the token " + std::to_string(t) + ", and the vocabulary has " +
                         std::to_string(target_.vocab) + " tokens",
                     "prompt");
}

std::string ServedModel::text_of_prompts(const ApiRequest& r) const {
  std::string all;
  for (const auto& message : r.messages) all += message["content"].get_ref<const std::string&>() + "\n";
  for (const ApiPrompt& prompt : r.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      expect_room(text->size(), "prompt");
      all += *text + "\n";
      continue;
    }
    const auto& tokens = std::get<std::vector<Token>>(prompt);
    expect_known(tokens);
    all += tokenizer_->decode(tokens, /*special=*/true) + "\n";
  }
  if (r.endpoint == Endpoint::chat) expect_room(all.size(), "messages");
  return all;
}

std::vector<std::pair<std::vector<Token>, std::string>> ServedModel::encoded(const ApiRequest& r) const {
  std::vector<std::pair<std::vector<Token>, std::string>> all;
  if (r.endpoint == Endpoint::chat) {
    if (!chat_) throw ApiError(400, for_clients("conversations cannot be served: " + no_chat_));
    std::size_t bytes = 0;
    for (const auto& message : r.messages) bytes += message["content"].get_ref<const std::string&>().size();
    expect_room(bytes, "messages");
    nlohmann::ordered_json messages = r.messages;
    if (const auto system = system_of(run_); system && messages.front()["role"] != "system")
      messages.insert(messages.begin(), nlohmann::ordered_json{{"role", "system"}, {"content", *system}});
    all.emplace_back(chat_->encode_messages(*tokenizer_, messages), "");
    return all;
  }
  for (const ApiPrompt& prompt : r.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      expect_room(text->size(), "prompt");
      all.emplace_back(tokenizer_->encode(*text), r.echo ? *text : "");
      continue;
    }
    const auto& tokens = std::get<std::vector<Token>>(prompt);
    expect_known(tokens);
    all.emplace_back(tokens, r.echo ? replace_broken_utf8(tokenizer_->decode(tokens)) : "");
  }
  return all;
}

Request ServedModel::request_of_prompt(const ApiRequest& r, const std::vector<Token>& prompt, int number) const {
  Request made;
  made.prompt = prompt;
  made.sampling = r.sampling;
  if (!r.ignore_eos) made.limits.stop_tokens = target_.stop_tokens;
  made.limits.stop = stop_at(tokenizer_, r.stops);
  made.sampling.constraint = constraint_of(r.response_format, tokenizer_, made.limits.stop_tokens);
  made.stream = stream_of(number, 0);
  return made;
}

// Of a request that does not say: what context and pages leave, up to the server's limit.
int ServedModel::most_new_tokens(const ApiRequest& r, Request made) const {
  if (r.max_tokens) return *r.max_tokens;
  int most = options_.limits.new_tokens;
  for (; most > 1; most = (most + 1) / 2) {
    made.limits.max_new_tokens = most;
    if (is_servable(*engine_, made)) break;  // what is not for one token either is refused when it is submitted
  }
  return most;
}

SubmittedOutput ServedModel::submit_one(const ApiRequest& r, Request made, const TokenStream* sample_of) {
  std::shared_ptr<LogProbabilities> logprobs;
  if (r.sampling.logprobs) {
    logprobs = std::make_shared<LogProbabilities>();
    made.on_tokens = [logprobs](const Sequence& q, std::span<const Token> emitted) {
      logprobs->add(q, emitted.size());
    };
  }
  std::function<void(SequenceId)> taken;
  if (r.draft_length) taken = [caps = caps_, levels = *r.draft_length](SequenceId id) { caps->set(id, levels); };
  const int prompt_tokens = int(made.prompt.size()), most_tokens = made.limits.max_new_tokens;
  std::optional<TokenStream> stream;
  try {
    stream = loop_->try_submit(std::move(made), sample_of, std::move(taken));
  } catch (const Error& e) {
    throw ApiError(loop_->broken().empty() ? 400 : 503, for_clients(e.what()));
  }
  if (!stream) throw busy(options_.waiting);
  return {.stream = std::move(*stream),
          .prompt_tokens = prompt_tokens,
          .most_tokens = most_tokens,
          .logprobs = std::move(logprobs)};
}

std::vector<SubmittedOutput> ServedModel::submit(const ApiRequest& asked) {
  ApiRequest r = asked;
  if (!r.seeded) r.sampling.seed = drawn_seed();
  std::vector<SubmittedOutput> all;
  try {
    const auto prompts = encoded(r);
    if (const std::size_t outputs = prompts.size() * std::size_t(r.n); outputs > options_.waiting)
      throw ApiError(400,
                     "the request asks for " + std::to_string(outputs) + " outputs, and at most " +
                         std::to_string(options_.waiting) + " may wait; ask for fewer in one request",
                     "n");
    for (std::size_t p = 0; p < prompts.size(); ++p) {
      Request made = request_of_prompt(r, prompts[p].first, int(p));
      made.limits.max_new_tokens = most_new_tokens(r, made);
      const std::size_t first = all.size();
      for (int k = 0; k < r.n; ++k) {
        Request one = made;
        one.stream = stream_of(int(p), std::uint64_t(k));
        all.push_back(submit_one(r, std::move(one), k > 0 ? &all[first].stream : nullptr));
        all.back().echo = prompts[p].second;
      }
    }
  } catch (const Error& e) {  // of the chat template
    throw ApiError(400, for_clients(e.what()));
  }
  return all;  // where one was refused, those before it are cancelled with it
}

}  // namespace foretoken::serve
