#include "experiments/bench/bench_steps.h"

#include <algorithm>
#include <cstdio>

#include <spdlog/spdlog.h>

#include "experiments/report/machine.h"
#include "experiments/report/results.h"
#include "experiments/report/statistics.h"
#include "experiments/report/terminal.h"
#include "experiments/session/workbench.h"
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
  double step_ms = 0, draft_ms = 0, draft_forward_ms = 0, target_ms = 0, verify_ms = 0, host_ms = 0, tau = 0;
  // Bytes a step must read: weights, and keys and values of the context; operations of its products; the least time for
  // both.
  double bytes = 0, operations = 0, roofline_ms = 0;
  int waits = 0;

  double share() const { return roofline_ms / step_ms; }
};

// What one user of a drafter's model ran in the measured steps, in all.
struct DraftReads {
  double forwards = 0;  // that attended to the context: those with logits
  double weight_bytes = 0, operations = 0;
  double left_out = 0;  // rows of the context that they did not attend to (ForwardTotals)
};

struct Steps {
  std::vector<StepReport> reports;
  std::vector<DraftReads> drafts;  // by Host::books
};

int step_rows_of(const Scenario& s) {
  const int rows = s.run.at("engine").at("step_rows");
  return rows > 0 ? rows : 512;
}

// The most rows of one sequence in a step that decodes.
int nodes_of(const Scenario& s) {
  const Json& policy = s.run.at("policy");
  return policy.at("nodes").is_null() ? policy.at("length").get<int>() + 1 : policy.at("nodes").get<int>();
}

std::unique_ptr<Engine> engine_of(const Scenario& s, Workbench& bench, const Registries& registries) {
  const int rows = s.prompt ? s.batch * s.context : std::max(step_rows_of(s), s.batch * nodes_of(s));
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
  m.draft_forward_ms = 1e3 * of([](const StepReport& r) { return r.phases.draft_forward; });
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

std::vector<ForwardTotals> totals_of(const Host& host) {
  std::vector<ForwardTotals> all;
  for (const auto& books : host.books()) all.push_back(books->totals());
  return all;
}

void add_reads(const std::vector<ForwardTotals>& before, const Host& host, std::vector<DraftReads>& drafts) {
  drafts.resize(before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    const ForwardTotals &from = before[i], &to = host.books()[i]->totals();
    drafts[i].forwards += double(to.with_logits - from.with_logits);
    drafts[i].weight_bytes += to.weight_bytes - from.weight_bytes;
    drafts[i].operations += to.row_bytes - from.row_bytes;  // two for a weight of bf16
    drafts[i].left_out += to.left_out - from.left_out;
  }
}

Steps prompt_steps(const Scenario& s, Engine& engine) {
  constexpr int kWarmUpPrompts = 3;  // one recorded, two replayed
  Steps kept;
  for (int i = 0; i < s.steps + kWarmUpPrompts; ++i) {
    for (int k = 0; k < s.batch; ++k) engine.submit(request_of(s, engine.target().info(), i * s.batch + k, 1));
    StepReport r = without_failures(engine.step());
    while (!engine.idle()) (void)without_failures(engine.step());
    if (i >= kWarmUpPrompts) kept.reports.push_back(std::move(r));
  }
  return kept;
}

// Steps in which every sequence decodes.
Steps decode_steps(const Scenario& s, Engine& engine) {
  constexpr int kWarmUpSteps = 6;  // one recorded, others replayed
  const int rows = nodes_of(s);
  // The first sequences decode while the last prompts are still fed, and must not end before the last ones start to
  // decode.
  const int prompt_steps = 2 + s.batch * s.context / step_rows_of(s);
  for (int k = 0; k < s.batch; ++k)
    engine.submit(request_of(s, engine.target().info(), k, (s.steps + kWarmUpSteps + prompt_steps + 8) * rows));
  Steps kept;
  for (int whole = 0; !engine.idle() && int(kept.reports.size()) < s.steps;) {
    const std::vector<ForwardTotals> before = totals_of(engine.host());
    StepReport r = without_failures(engine.step());
    const auto judged = [](const SequenceReport& q) { return q.judged; };
    if (int(r.sequences.size()) != s.batch || !std::ranges::all_of(r.sequences, judged) || r.rows > s.batch * rows)
      continue;
    if (++whole <= kWarmUpSteps) continue;
    kept.reports.push_back(std::move(r)), add_reads(before, engine.host(), kept.drafts);
  }
  if (int(kept.reports.size()) < s.steps)
    throw Error("scenario '" + s.name + "': only " + std::to_string(kept.reports.size()) + " of " +
                std::to_string(s.steps) + " steps had all " + std::to_string(s.batch) +
                " sequences decoding; give the engine more memory");
  return kept;
}

ModelConfig config_of(const Scenario& s) {
  return open_model(target_of(s.run), [](const std::string& directory) { return directory; }).config;
}

// Numbers of the matrices of a layer's attention.
double attention_of(const ModelConfig& m) {
  const double width = m.width, q = double(m.heads) * m.head_size, kv = double(m.kv_heads) * m.head_size;
  if (!m.latent) return 2 * width * (q + kv);
  const LatentConfig& l = *m.latent;
  const double rank = l.query_rank, of_queries = rank > 0 ? rank * (width + q) : width * q;
  return of_queries + width * l.kept() + double(m.heads) * (double(l.rank) * (l.plain + l.value) + width * l.value);
}

// Of the products of a forward: logits of some of its rows.
double operations_of(const ModelConfig& m, double rows, double logits) {
  const double width = m.width;
  double hidden = 0;  // units of all layers that a row uses
  for (int l = 0; l < m.layers; ++l) {
    const std::optional<MixtureConfig> mixture = m.of_layer(l).mixture;
    hidden += mixture ? double(mixture->used) * mixture->width + mixture->shared_width : m.ffn;
  }
  return 2 * (rows * width * 3 * hidden + rows * m.layers * attention_of(m) + logits * m.vocab * width);
}

// Of a sequence's cache that a row reads: a layer with a window reads no more than that.
double cache_bytes(const KvShape& kv, int context) {
  double bytes = 0;
  for (const LayerShape& l : kv.layers)
    bytes += double(l.window > 0 ? std::min(context, l.window) : context) * double(l.bytes_per_row());
  return bytes;
}

// Sets the bytes and operations of a step, and the least milliseconds that they take.
void add_roofline(const Scenario& s, Engine& engine, const Steps& steps, const DeviceSpeed& machine, Measured& m) {
  const auto add = [&](double bytes, double operations) {
    m.bytes += bytes, m.operations += operations;
    m.roofline_ms += 1e3 * std::max(bytes / machine.bytes_a_second, operations / machine.operations_a_second);
  };
  const ModelInfo& model = engine.target().info();
  const double slots = double(s.batch) * s.context,
               rows = s.batch + double(s.guesses > 0 ? std::min(s.guessing, s.batch) : s.batch) * (nodes_of(s) - 1);
  const ModelConfig target = config_of(s);
  if (s.prompt)
    return add(double(model.weight_bytes - model.spared_bytes(slots)), operations_of(target, slots, s.batch));
  add(double(model.weight_bytes - model.spared_bytes(rows)) + s.batch * cache_bytes(model.kv, s.context),
      operations_of(target, rows, rows));
  for (std::size_t i = 0; i < steps.drafts.size(); ++i) {
    const DraftReads& d = steps.drafts[i];
    const double cached = (d.forwards * slots - d.left_out) * double(engine.host().books()[i]->weights().row_bytes);
    add((d.weight_bytes + cached) / s.steps, d.operations / s.steps);
  }
}

// A CPU shares its memory, so its speed is that before and behind the steps.
Measured measure(const Scenario& s, Workbench& bench, const Registries& registries, DeviceSpeed& machine) {
  const std::unique_ptr<Engine> engine = engine_of(s, bench, registries);
  Backend& backend = bench.backend(s.run.at("engine"));
  const bool host = backend.device() == Device{};
  const DeviceSpeed before = host ? backend.measure_speed() : machine;
  const Steps steps = s.prompt ? prompt_steps(s, *engine) : decode_steps(s, *engine);
  Measured m = summary(steps.reports);
  const DeviceSpeed after = host ? backend.measure_speed() : machine;
  machine = {(before.bytes_a_second + after.bytes_a_second) / 2,
             (before.operations_a_second + after.operations_a_second) / 2, before.reads};
  add_roofline(s, *engine, steps, machine, m);
  return m;
}

const char* bandwidth_key(const DeviceSpeed& machine) {
  return machine.reads ? "read_bytes_per_second" : "copy_bytes_per_second";
}

// What every line of results has.
Json common(const Scenario& s, const DeviceSpeed& machine, const Backend& backend) {
  return {{"scenario", s.name},
          {"run", s.run},
          {"batch", s.batch},
          {"context", s.context},
          {"steps", s.steps},
          {"bar_ms", s.bar_ms},
          {"peer_ms", s.peer_ms},
          {bandwidth_key(machine), machine.bytes_a_second},
          {"operations_per_second", machine.operations_a_second},
          {"machine", to_json(machine_of(backend))},
          {"commit", kCommit},
          {"date", utc_now()}};
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Measured, step_ms, draft_ms, draft_forward_ms, target_ms, verify_ms, host_ms, tau,
                                   bytes, operations, roofline_ms, waits)

std::string row_of(const Scenario& s, const Measured& m) {
  const auto or_dash = [](double v) {
    char text[32];
    return std::snprintf(text, sizeof text, v > 0 ? "%.2f" : "-", v), std::string(text);
  };
  char row[256];
  std::snprintf(row, sizeof row, " %8.3f %8.3f %8.3f %6.2f %8.3f %8.3f %8.3f %7.3f %5d %6.2f %7s %7s", m.step_ms,
                m.bytes / 1e9, m.roofline_ms, m.share(), m.draft_ms, m.target_ms, m.verify_ms, m.host_ms, m.waits,
                m.tau, or_dash(s.bar_ms).c_str(), or_dash(s.peer_ms).c_str());
  return s.name + std::string(s.name.size() < 44 ? 44 - s.name.size() : 0, ' ') + row;
}

// Measures a scenario; returns its line and sets its row of the table.
Json measure_scenario(const Scenario& s, Workbench& bench, const Registries& registries, DeviceSpeed& machine,
                      ScenarioBars& bars, std::string& row) {
  ScenarioTimes times;
  Json figures;
  if (s.attention || s.moves > 0) {
    const AloneResult r = s.attention ? measure_attention(s, bench, config_of(s), machine.bytes_a_second)
                                      : measure_compaction(s, bench, machine.bytes_a_second);
    times.ms = r.ms;
    figures = r.line;
    row = r.text;
  } else {
    const Measured m = measure(s, bench, registries, machine);
    times = {m.step_ms, m.verify_ms, m.host_ms, m.draft_ms, m.draft_forward_ms};
    figures = m;
    figures["share"] = m.share();
    row = row_of(s, m);
  }
  Json line = common(s, machine, bench.backend(s.run.at("engine")));
  line.update(figures);
  if (const std::string judged = bars.judge(s, times, line); !judged.empty()) row += " " + judged;
  return line;
}

}  // namespace

int run_steps(const StepsOptions& options) {
  BenchFile results(options.results, "scenario");
  Workbench bench;
  Registries registries = bench.registries();
  registries.drafters.add("guesses",
                          {"arbitrary tokens",
                           "",
                           {{"children", "integer", 1, "of each node", false, 1, kMaxNodes},
                            {"guessing", "integer", 1, "sequences that guess", false, 1, 4096}},
                           [](const Json& o, Host& host) { return std::make_unique<Guesses>(o, host); },
                           [](const Json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain}}; }});
  const std::vector<Scenario> scenarios = read_scenarios(options.file, options.only, options.device, registries);
  Backend& backend = bench.backend(scenarios.front().run.at("engine"));
  DeviceSpeed machine = backend.measure_speed();
  if (!options.json)
    std::printf("%s: %s %.0f GB/s, products %.3g TFLOP/s\n%-44s %8s %8s %8s %6s %8s %8s %8s %7s %5s %6s %7s %7s\n",
                backend.description().c_str(), machine.reads ? "reads" : "copies", machine.bytes_a_second / 1e9,
                machine.operations_a_second / 1e12, "milliseconds a step, median", "step", "GB", "roofline", "share",
                "draft", "target", "verify", "host", "waits", "tau", "bar", "peer");
  int failed = 0;
  ScenarioBars bars;
  for (const Scenario& s : scenarios) {
    Json line;
    try {
      std::string row;
      line = measure_scenario(s, bench, registries, machine, bars, row);
      std::printf("%s\n", options.json ? line.dump().c_str() : one_line(row).c_str());
      std::fflush(stdout);
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
