// `foretoken serve`: a server of OpenAI's API over one model. Options set keys of a run document.
#include <csignal>
#include <thread>

#include <spdlog/spdlog.h>

#include "experiments/program/commands.h"
#include "experiments/serve/overhead.h"
#include "experiments/serve/server.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/sweep.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

struct ServeFlags {
  std::string model, draft, drafter, config, chat_template, keys, access_log = "-";
  std::string filter;
  double filter_seconds = 5;
  std::vector<std::string> set, plugins;
  int batch = 32, queue = 256;
  bool open = false;
  double body_mib = 2;
  serve::ServerOptions server;
  serve::RequestLimits limits;
  serve::Rates rates;
  serve::OverheadOptions overhead{.streams = 0};
};

json served_document(const ServeFlags& f) {
  json run = f.config.empty() ? json::object() : json::parse(read_document(f.config).dump());
  if (!run.is_object()) throw Error(f.config + " is no run document, which is a JSON object");
  if (!f.model.empty()) run["target"]["model"] = f.model;
  if (!f.drafter.empty() && !f.draft.empty())
    throw Error("--draft DIR selects the drafter draft_model and excludes --drafter; leave one of them out");
  if (!f.draft.empty()) run["drafter"] = {{"name", "draft_model"}, {"model", f.draft}};
  if (!f.drafter.empty()) run["drafter"] = component_config(f.drafter, "--drafter");
  if (!run.contains("drafter")) run["drafter"] = {{"name", "none"}};
  if (!run.contains("/engine/batch"_json_pointer)) run["engine"]["batch"] = f.batch;
  for (const auto& s : f.set) put_setting(run, s, "--set");
  if (!run.contains("/target/model"_json_pointer) && !run.contains("axes"))  // of a sweep more is said later
    throw Error("there is no model to serve; give --model DIR, or a run document with --config FILE");
  return run;
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

// Instead of serving others.
void measure(serve::ServedModel& model, serve::Server& server, const serve::OverheadOptions& options) {
  std::thread thread([&] { server.run(); });
  const auto end = [&] {
    server.stop();
    thread.join();
  };
  try {
    print(serve::measured_overhead(model, server, options));
  } catch (...) {
    end();
    throw;
  }
  end();
}

void serve_clients(const ServeFlags& f, serve::ServedModel& model, serve::Keys& keys, serve::Metrics& metrics,
                   serve::AccessLog& log) {
  serve::Server server(model, keys, metrics, log, f.server);
  if (f.overhead.streams > 0) return measure(model, server, f.overhead);
  server.watch_signals();
  spdlog::info("serving {} at {}/v1; Ctrl-C ends it once running requests are done", model.name(), server.url());
  if (!model.no_chat().empty()) spdlog::info("conversations are refused: {}", model.no_chat());
  server.run();
  spdlog::info("the server has ended");
}

int serve_model(ServeFlags& f) {
  if (!is_loopback(f.server.host) && f.keys.empty() && !f.open)
    throw Error("--host " + f.server.host +
                " is reached from other machines, and no key is asked for; give --keys FILE, or --open where a proxy "
                "or a firewall keeps strangers out");
  std::signal(SIGPIPE, SIG_IGN);  // of an access log that nobody reads any more
  if (f.overhead.streams > 0) {
    f.server.host = "127.0.0.1";
    f.server.port = 0;
    f.keys.clear();
    f.access_log = "none";
    f.queue = std::max(f.queue, f.overhead.streams);
  }
  f.server.body_bytes = std::size_t(f.body_mib * (1 << 20));
  serve::Keys keys = f.keys.empty() ? serve::Keys(f.rates) : serve::Keys(f.keys, f.rates);
  serve::AccessLog log(f.access_log);
  std::unique_ptr<serve::ContentFilter> filter;
  if (!f.filter.empty()) filter = std::make_unique<serve::ContentFilter>(f.filter, f.filter_seconds);
  f.server.filter = filter.get();
  const json document = served_document(f);
  std::unique_ptr<serve::Metrics> metrics;  // named by the model; no step is taken before it is there
  serve::ServedModel model(document, f.plugins, f.config.empty() ? "" : std::filesystem::path(f.config).parent_path(),
                           {.waiting = std::size_t(f.queue),
                            .after_step = [&](const StepReport& report) { metrics->observe(report); },
                            .limits = f.limits,
                            .chat_template = f.chat_template});
  metrics = std::make_unique<serve::Metrics>(f.server.name.empty() ? model.name() : f.server.name);
  serve_clients(f, model, keys, *metrics, log);
  model.loop().drain();  // what was cancelled ends, and nothing changes any more
  for (const std::string& sentence : {model.engine().doubt(), model.engine().notice()})
    if (!sentence.empty()) spdlog::warn("{}", sentence);
  return 0;
}

void add_limits(CLI::App& c, ServeFlags& f) {
  c.add_option("--keys", f.keys, "file of the SHA-256 of each key and its owner's name (experiments/serve/README.md)");
  add_repeatable(
      c, "--allow-host", f.server.hosts,
      "name in the header Host that is allowed where no key is asked for, beside localhost; may be given again");
  c.add_flag("--open", f.open, "ask for no key though other machines reach it");
  add_shown(c, "--requests-per-minute", f.rates.requests_per_minute, "of each key; 0: no limit");
  add_shown(c, "--tokens-per-minute", f.rates.tokens_per_minute, "of prompts and outputs of each key; 0: no limit");
  c.add_option("--filter", f.filter, "command that judges prompts and outputs (experiments/serve/README.md)");
  add_shown(c, "--filter-seconds", f.filter_seconds, "that it has for each text")->check(number_within(0.01, 3600));
  add_shown(c, "--filter-bytes", f.server.filter_bytes, "of a stream that are held back until it has judged them")
      ->check(CLI::Range(1, 1 << 20));
  add_shown(c, "--queue", f.queue, "the most requests that wait; further ones are answered with 429")
      ->check(CLI::Range(1, 1 << 20));
  add_shown(c, "--max-new-tokens", f.limits.new_tokens, "the most tokens of one output")->check(CLI::Range(1, 1 << 24));
  add_shown(c, "--choices", f.limits.choices, "the most outputs of one request")->check(CLI::Range(1, 1 << 12));
  add_shown(c, "--connections", f.server.connections, "the most that are open at once; further ones wait")
      ->check(CLI::Range(1, 1 << 20));
  add_shown(c, "--body-mib", f.body_mib, "MiB of a request's body at most")->check(number_within(0.001, 1024));
  add_shown(c, "--read-seconds", f.server.read_seconds, "for a request to arrive")->check(number_within(0.01, 3600));
  add_shown(c, "--write-seconds", f.server.write_seconds, "for a client to take what was sent")
      ->check(number_within(0.01, 3600));
  add_shown(c, "--request-seconds", f.server.request_seconds, "from a request's arrival to its end")
      ->check(number_within(0.01, 1e6));
  add_shown(c, "--drain-seconds", f.server.drain_seconds, "that running requests have when it is told to end")
      ->check(number_within(0, 1e5));
}

}  // namespace

void add_serve(Commands& all) {
  const auto [c, f] =
      all.add_subcommand("serve", "serve a model by OpenAI's API: completions, chat, streams, metrics", serve_model);
  c.add_option("--model", f.model, "Hugging Face directory or GGUF file of the target");
  c.add_option("--draft", f.draft, "Hugging Face directory or GGUF file of a draft model");
  c.add_option("--drafter", f.drafter, "another drafter (foretoken list): a name, or JSON with options");
  c.add_option("--config", f.config, "run document; its sampling has the defaults of requests");
  c.add_option("--chat-template", f.chat_template, "file with a Jinja template (default: the model's, if it has one)");
  add_repeatable(c, "--set", f.set, "/POINTER=VALUE, any key of a run (foretoken keys); may be given again");
  add_shown(c, "--batch", f.batch, "the most outputs at once, where the run does not say")->check(CLI::Range(1, 4096));
  add_shown(c, "--host", f.server.host, "address that is listened at");
  add_shown(c, "--port", f.server.port, "0: any that is free")->check(CLI::Range(0, 65535));
  c.add_option("--name", f.server.name, "of the model, for clients (default: the last part of its path)");
  add_limits(c, f);
  add_shown(c, "--access-log", f.access_log, "a line of JSON for each request; -: standard output, none, or a file");
  add_shown(c, "--measure", f.overhead.streams,
            "serve nobody, but compare so many streams with the engine alone; 0: serve")
      ->check(CLI::Range(0, 1 << 16));
  add_shown(c, "--measure-tokens", f.overhead.tokens, "of each of these streams")->check(CLI::Range(1, 1 << 20));
  add_plugins(c, f.plugins);
}

}  // namespace foretoken
