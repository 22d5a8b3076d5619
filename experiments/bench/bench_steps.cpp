#include "experiments/bench/bench_steps.h"

#include <algorithm>
#include <cstdio>

#include <spdlog/spdlog.h>

#include "experiments/bench/bench_attention.h"
#include "experiments/bench/bench_scenarios.h"
#include "experiments/report/bench_file.h"
#include "experiments/report/machine.h"
#include "experiments/report/statistics.h"
#include "experiments/report/terminal.h"
#include "experiments/sweep/workbench.h"
#include "foretoken_version.h"
#include "framework/model/open_model.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using Json = nlohmann::json;

// Proposes arbitrary tokens for the first sequences of a batch, to measure verification of a given number of rows: a
// chain, or a tree whose nodes have several children each, breadth first.
class Guesses : public Drafter {
 public:
  Guesses(const Json& options, Host& host)
      : backend_(host.backend()),
        vocab_(host.target().vocab),
        children_(options.at("children")),
        guessing_(options.at("guessing")) {}
  Needs needs() const override { return {{Drawn::certain}, false}; }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < std::min(trees.size(), std::size_t(guessing_)); ++i)
      for (int n = 0; n < (children_ > 1 ? requests[i].budget.nodes - 1 : requests[i].budget.chain()); ++n)
        trees[i].guess(n / children_, Token((requests[i].sequence->length() * 31 + n * 7) % vocab_));
    return trees;
  }

 private:
  Backend& backend_;
  int vocab_, children_, guessing_;
};

struct Measured {
  double step_ms = 0, draft_ms = 0, target_ms = 0, verify_ms = 0, host_ms = 0, tau = 0;
  // Bytes a step must read: weights, and keys and values of the context; operations of its products; the least time for
  // both.
  double bytes = 0, operations = 0, roofline_ms = 0;
  int waits = 0;

  double share() const { return roofline_ms / step_ms; }
};

int step_rows_of(const Scenario& s) {
  const int rows = s.run.at("engine").at("step_rows");
  return rows > 0 ? rows : 512;
}

std::unique_ptr<Engine> engine_of(const Scenario& s, Workbench& bench, const Registries& registries) {
  const int rows =
      s.prompt ? s.batch * s.context : std::max(step_rows_of(s), s.batch * (s.run["policy"]["length"].get<int>() + 1));
  Json run = s.run;
  run["engine"]["step_rows"] = rows;
  run["engine"]["reuse_prefixes"] = false;
  return bench.engine(run, Side::speculative, {}, registries);
}

Request request_of(const Scenario& s, const ModelInfo& target, int number, int new_tokens) {
  Request r;
  for (int i = 0; i < s.context; ++i)
    r.prompt.push_back(
        Token((std::uint64_t(i) * 7919 + std::uint64_t(number) * 104729) * 2654435761u % std::uint64_t(target.vocab)));
  r.limits.max_new_tokens = new_tokens;
  const Json& sampling = s.run.at("sampling");
  r.sampling.temperature = sampling.at("temperature"), r.sampling.top_k = sampling.at("top_k"),
  r.sampling.top_p = sampling.at("top_p"), r.sampling.min_p = sampling.at("min_p");
  r.stream = std::uint64_t(number);
  return r;
}

Measured summary(const std::vector<StepReport>& steps) {
  const auto of = [&](auto field) {
    std::vector<double> v;
    for (const StepReport& r : steps) v.push_back(field(r));
    return median(v);
  };
  Measured m;
  m.step_ms = 1e3 * of([](const StepReport& r) { return r.phases.total; });
  m.draft_ms = 1e3 * of([](const StepReport& r) { return r.phases.draft_forward + r.phases.draft_other; });
  m.target_ms = 1e3 * of([](const StepReport& r) { return r.phases.target_forward; });
  m.verify_ms = 1e3 * of([](const StepReport& r) { return r.phases.verify; });
  m.host_ms = 1e3 * of([](const StepReport& r) { return r.phases.schedule + r.phases.deliver; });
  m.waits = int(of([](const StepReport& r) { return double(r.waits); }));
  double emitted = 0, judged = 0;
  for (const StepReport& r : steps)
    for (const SequenceReport& q : r.sequences) emitted += double(q.emitted.size()), judged += q.judged;
  m.tau = judged > 0 ? emitted / judged : 0;
  return m;
}

std::vector<StepReport> prompt_steps(const Scenario& s, Engine& engine) {
  constexpr int kWarmUpPrompts = 3;  // one recorded, two replayed
  std::vector<StepReport> kept;
  for (int i = 0; i < s.steps + kWarmUpPrompts; ++i) {
    for (int k = 0; k < s.batch; ++k) engine.submit(request_of(s, engine.target().info(), i * s.batch + k, 1));
    StepReport r = without_failures(engine.step());
    while (!engine.idle()) (void)without_failures(engine.step());
    if (i >= kWarmUpPrompts) kept.push_back(std::move(r));
  }
  return kept;
}

// Steps in which every sequence decodes.
std::vector<StepReport> decode_steps(const Scenario& s, Engine& engine) {
  constexpr int kWarmUpSteps = 6;  // one recorded, others replayed
  const int rows = s.run["policy"]["length"].get<int>() + 1;
  // The first sequences decode while the last prompts are still fed, and must not end before the last ones start to
  // decode.
  const int prompt_steps = 2 + s.batch * s.context / step_rows_of(s);
  for (int k = 0; k < s.batch; ++k)
    engine.submit(request_of(s, engine.target().info(), k, (s.steps + kWarmUpSteps + prompt_steps + 8) * rows));
  std::vector<StepReport> kept;
  for (int whole = 0; !engine.idle() && int(kept.size()) < s.steps;) {
    StepReport r = without_failures(engine.step());
    const auto judged = [](const SequenceReport& q) { return q.judged; };
    if (int(r.sequences.size()) != s.batch || !std::ranges::all_of(r.sequences, judged) || r.rows > s.batch * rows)
      continue;
    if (++whole > kWarmUpSteps) kept.push_back(std::move(r));
  }
  if (int(kept.size()) < s.steps)
    throw Error("scenario '" + s.name + "': only " + std::to_string(kept.size()) + " of " + std::to_string(s.steps) +
                " steps had all " + std::to_string(s.batch) + " sequences decoding; give the engine more memory");
  return kept;
}

ModelConfig config_of(const Scenario& s) {
  return open_model(target_of(s.run), [](const std::string& directory) { return directory; }).config;
}

// Of the products of a forward: logits of some of its rows.
double operations_of(const ModelConfig& m, double rows, double logits) {
  const double width = m.width, q = double(m.heads) * m.head_size, kv = double(m.kv_heads) * m.head_size;
  return 2 * (rows * m.layers * width * (2 * (q + kv) + 3.0 * m.ffn) + logits * m.vocab * width);
}

// Sets the bytes and operations of a step, and the least milliseconds that they take.
void add_roofline(const Scenario& s, Engine& engine, const DeviceSpeed& machine, Measured& m) {
  const auto add = [&](const ModelInfo& model, double forwards, double operations, double slots) {
    const double bytes = double(model.weight_bytes) + slots * double(model.kv.bytes_per_row());
    m.bytes += forwards * bytes, m.operations += forwards * operations;
    m.roofline_ms +=
        1e3 * forwards * std::max(bytes / machine.bytes_a_second, operations / machine.operations_a_second);
  };
  const int length = s.run["policy"]["length"];
  const double slots = double(s.batch) * s.context,
               rows = s.batch + double(s.guesses > 0 ? std::min(s.guessing, s.batch) : s.batch) * length;
  const ModelConfig target = config_of(s);
  if (s.prompt) return add(engine.target().info(), 1, operations_of(target, slots, s.batch), 0);
  add(engine.target().info(), 1, operations_of(target, rows, rows), slots);
  for (const auto& c : engine.host().caches())  // two operations for a weight of bf16
    add(c->info(), length, double(s.batch) * double(c->info().weight_bytes), slots);
}

// A CPU shares its memory, so its speed is that before and behind the steps.
Measured measure(const Scenario& s, Workbench& bench, const Registries& registries, DeviceSpeed& machine) {
  const std::unique_ptr<Engine> engine = engine_of(s, bench, registries);
  Backend& backend = bench.backend(s.run.at("engine"));
  const bool host = backend.device() == Device{};
  const DeviceSpeed before = host ? backend.measure_speed() : machine;
  Measured m = summary(s.prompt ? prompt_steps(s, *engine) : decode_steps(s, *engine));
  const DeviceSpeed after = host ? backend.measure_speed() : machine;
  machine = {(before.bytes_a_second + after.bytes_a_second) / 2,
             (before.operations_a_second + after.operations_a_second) / 2, before.reads};
  add_roofline(s, *engine, machine, m);
  return m;
}

const char* bandwidth_key(const DeviceSpeed& machine) {
  return machine.reads ? "read_bytes_per_second" : "copy_bytes_per_second";
}

Json as_json(const Scenario& s, const Measured& m, const DeviceSpeed& machine, const Backend& backend) {
  return {{"scenario", s.name},
          {"run", s.run},
          {"batch", s.batch},
          {"context", s.context},
          {"steps", s.steps},
          {"step_ms", m.step_ms},
          {"draft_ms", m.draft_ms},
          {"target_ms", m.target_ms},
          {"verify_ms", m.verify_ms},
          {"host_ms", m.host_ms},
          {"tau", m.tau},
          {"waits", m.waits},
          {"bytes", m.bytes},
          {"operations", m.operations},
          {"roofline_ms", m.roofline_ms},
          {"share", m.share()},
          {"bar_ms", s.bar_ms},
          {"peer_ms", s.peer_ms},
          {bandwidth_key(machine), machine.bytes_a_second},
          {"operations_per_second", machine.operations_a_second},
          {"machine", machine_of(backend)},
          {"commit", kCommit},
          {"date", utc_now()}};
}

// Attention alone: its JSON line, and the text printed without --json.
Json attention_line(const Scenario& s, Workbench& bench, const DeviceSpeed& machine, std::string& text) {
  Backend& backend = bench.backend(s.run.at("engine"));
  const ModelConfig model = config_of(s);
  const AttentionLoad load{s.batch, s.context, s.guesses + 1, bench.target_info(s.run, "").kv.layers.front()};
  const double seconds = attention_seconds(backend, model, load, s.steps), bytes = load.bytes(),
               share = share_of(bytes, seconds, machine.bytes_a_second);
  char line[256];
  std::snprintf(line, sizeof line, "%-44s %8.2f us a layer, %.1f MB of keys and values: %.3f of the copy bandwidth",
                s.name.c_str(), seconds * 1e6, bytes / 1e6, share);
  text = line;
  if (s.share > 0)
    std::snprintf(line, sizeof line, " (at least %g: %s)", s.share, share >= s.share ? "met" : "MISSED"), text += line;
  Json j{{"scenario", s.name},
         {"run", s.run},
         {"batch", s.batch},
         {"context", s.context},
         {"rows", load.rows},
         {"repeats", s.steps},
         {"layer_us", seconds * 1e6},
         {"kv_bytes", bytes},
         {"share", share},
         {bandwidth_key(machine), machine.bytes_a_second},
         {"machine", machine_of(backend)},
         {"commit", kCommit},
         {"date", utc_now()}};
  if (s.share > 0) j["bar_share"] = s.share, j["met"] = share >= s.share;
  return j;
}

void print_line(const Scenario& s, const Measured& m) {
  const auto or_dash = [](double v) {
    char text[32];
    return std::snprintf(text, sizeof text, v > 0 ? "%.2f" : "-", v), std::string(text);
  };
  std::printf("%-44s %8.3f %8.3f %8.3f %6.2f %8.3f %8.3f %8.3f %7.3f %5d %6.2f %7s %7s %s\n", one_line(s.name).c_str(),
              m.step_ms, m.bytes / 1e9, m.roofline_ms, m.share(), m.draft_ms, m.target_ms, m.verify_ms, m.host_ms,
              m.waits, m.tau, or_dash(s.bar_ms).c_str(), or_dash(s.peer_ms).c_str(),
              s.bar_ms <= 0           ? ""
              : m.step_ms <= s.bar_ms ? "met"
                                      : "MISSED");
  std::fflush(stdout);
}

}  // namespace

int run_steps(const StepsOptions& options) {
  BenchFile results(options.results, "scenario");
  Workbench bench;
  Registries registries = bench.registries();
  registries.drafters.add("guesses", {"arbitrary tokens",
                                      "",
                                      {{"children", "integer", 1, "of each node", false, 1, kMaxNodes},
                                       {"guessing", "integer", 1, "sequences that guess", false, 1, 4096}},
                                      [](const Json& o, Host& host) { return std::make_unique<Guesses>(o, host); }});
  const std::vector<Scenario> scenarios = read_scenarios(options.file, options.only, options.device, registries);
  Backend& backend = bench.backend(scenarios.front().run.at("engine"));
  DeviceSpeed machine = backend.measure_speed();
  if (!options.json)
    std::printf("%s: %s %.0f GB/s, products %.3g TFLOP/s\n%-44s %8s %8s %8s %6s %8s %8s %8s %7s %5s %6s %7s %7s\n",
                backend.description().c_str(), machine.reads ? "reads" : "copies", machine.bytes_a_second / 1e9,
                machine.operations_a_second / 1e12, "milliseconds a step, median", "step", "GB", "roofline", "share",
                "draft", "target", "verify", "host", "waits", "tau", "bar", "peer");
  int failed = 0;
  for (const Scenario& s : scenarios) {
    Json line;
    try {
      std::string text;
      if (s.attention) {
        line = attention_line(s, bench, machine, text);
        if (!options.json) std::printf("%s\n", one_line(text).c_str()), std::fflush(stdout);
      } else {
        const Measured m = measure(s, bench, registries, machine);
        line = as_json(s, m, machine, bench.backend(s.run.at("engine")));
        if (!options.json) print_line(s, m);
      }
      if (options.json) std::printf("%s\n", line.dump().c_str());
    } catch (const Error& e) {
      spdlog::error("{}: {}", s.name, e.what());
      ++failed;
    }
    if (!line.is_null()) results.append(line);
    bench.forget_unused();  // models of the scenarios before this one
  }
  return failed ? 1 : 0;
}

}  // namespace foretoken
