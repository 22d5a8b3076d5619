#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>

#include "experiments/bench/bench.h"
#include "experiments/report/statistics.h"
#include "experiments/session/run_document.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/runner.h"
#include "experiments/sweep/workload.h"
#include "kernels/cpu/ceilings.h"

namespace foretoken {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Bar, name, bytes, operations, seconds, roofline, figure, unit, bar, at_most)

namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kSteps = 6, kWarmUp = 2;  // of one alternation; uncounted steps before them
constexpr int kLong = 4096;             // slots of a long context
constexpr int kPrompt = 512;            // rows of a prompt

Json run_of(int threads, int batch, int length, const Registries& registries) {
  Json run{{"target", {{"model", "experiments/models/target"}}},
           {"policy", {{"name", "fixed"}, {"length", length}}},
           {"engine",
            {{"device", "cpu"},
             {"threads", threads},
             {"batch", batch},
             {"page_rows", kPageRows},
             {"reuse_prefixes", false}}},
           {"workload", {{"prompts", "experiments/prompts.jsonl"}, {"max_new_tokens", 256}, {"ignore_eos", true}}}};
  if (length > 0) run["drafter"] = {{"name", "draft_model"}, {"model", "experiments/models/draft"}};
  return complete_run(run, registries, "bench");
}

// The demo target, with the demo draft if `length` > 0, serving prompts endlessly at batch size `batch`.
class Serving {
 public:
  Serving(Workbench& bench, int threads, int batch, int length)
      : run_(run_of(threads, batch, length, bench.registries())),
        batch_(batch),
        engine_(bench.engine(run_, Side::speculative, {})),
        jobs_(jobs_of(run_, bench, {})) {}

  // Steps in which every sequence decodes and no prompt is read; the first steps of each call only refill the caches
  // after other measurements.
  void sample() {
    for (int n = 0; n < kWarmUp + kSteps;) {
      while (int(slots_.size()) < batch_) submit();
      const double before = double(
          std::accumulate(slots_.begin(), slots_.end(), 0, [](int sum, const auto& s) { return sum + s.second; }));
      const StepReport r = without_failures(engine_->step());
      const bool whole =
          int(r.sequences.size()) == batch_ &&
          std::ranges::all_of(r.sequences, [](const SequenceReport& s) { return s.judged && s.prompt_rows == 0; });
      for (const SequenceReport& s : r.sequences) slots_.at(s.id) += int(s.emitted.size());
      for (const Sequence& s : r.finished) slots_.erase(s.id);
      if (!whole || ++n <= kWarmUp) continue;
      seconds_.push_back(r.phases.total), overhead_.push_back(r.phases.overhead() / r.phases.total),
          seen_.push_back(before);
    }
  }
  double seconds() const { return median(seconds_); }
  double overhead() const { return median(overhead_); }  // share of a step outside forwards
  double bytes() const {                                 // weights and cached positions read by a step without drafts
    const ModelInfo& m = engine_->target().info();
    return double(m.weight_bytes) + median(seen_) * double(m.kv.bytes_per_row());
  }

 private:
  void submit() {
    Request r = jobs_[next_++ % jobs_.size()].request;
    const int length = int(r.prompt.size());
    slots_[engine_->submit(std::move(r))] = length;
  }

  Json run_;
  int batch_;
  std::unique_ptr<Engine> engine_;
  std::vector<Job> jobs_;
  std::size_t next_ = 0;
  std::map<SequenceId, int> slots_;  // positions of every sequence, its last token among them
  std::vector<double> seconds_, overhead_, seen_;
};

// One row of each of `batch` sequences attends to a long context, in every layer of a model of this shape. As in a
// step, a layer's weights are read before its attention; only attention is timed.
class LongAttention {
 public:
  LongAttention(CpuBackend& cpu, const ModelConfig& m, double weights, int batch)
      : backend_(cpu), scale_(1 / float(m.head_size)) {
    const int pages = kLong / kPageRows;
    const std::int64_t plane = std::int64_t(kPageRows) * m.kv_heads * m.head_size * 2;
    for (int l = 0; l < m.layers; ++l) weights_.emplace_back(cpu, std::int64_t(weights) / m.layers);
    const Tensor pool = cpu.allocate({std::int64_t(pages) * batch, 2 * plane * m.layers}, DType::u8);
    std::memset(pool.raw(), 0x3c, std::size_t(pool.bytes()));
    for (int l = 0; l < m.layers; ++l)
      layers_.push_back({pool, 2 * l * plane, (2 * l + 1) * plane, kPageRows, m.kv_heads, m.head_size, DType::bf16});
    q_ = Tensor::host({batch, std::int64_t(m.heads) * m.head_size}, DType::f32);
    std::ranges::fill(q_.values<float>(), 0.5f);
    layout_.rows = layout_.sequences = batch, layout_.table_width = pages, layout_.deepest = kLong, layout_.longest = 1;
    for (Tensor Layout::* column : {&Layout::owner, &Layout::visible})
      layout_.*column = Tensor::host({batch}, DType::i32);
    layout_.tables = Tensor::host({batch, pages}, DType::i32);
    for (int s = 0; s < batch; ++s) {
      *layout_.owner.row<std::int32_t>(s) = s, *layout_.visible.row<std::int32_t>(s) = kLong;
      for (int p = 0; p < pages; ++p)
        layout_.tables.row<std::int32_t>(s)[p] = p * batch + s;  // as sequences that grow in parallel take them
    }
    bytes = double(pool.bytes()), operations = 4.0 * kLong * double(q_.elements()) * m.layers;
  }
  void sample() {
    std::chrono::duration<double> took{};
    for (int n = 0; n < kWarmUp + 1; ++n) {
      took = {};
      for (std::size_t l = 0; l < layers_.size(); ++l) {
        weights_[l].read();
        const auto start = Clock::now();
        backend_.attend(q_, layers_[l], layout_, scale_);
        took += Clock::now() - start;
      }
    }
    seconds_.push_back(took.count());
  }
  double seconds() const { return median(seconds_); }

  double bytes, operations;

 private:
  Backend& backend_;
  float scale_;
  std::vector<ReadProbe> weights_;
  std::vector<KvLayer> layers_;
  Layout layout_;
  Tensor q_;
  std::vector<double> seconds_;
};

// A step that reads a whole prompt.
class PromptReading {
 public:
  PromptReading(Workbench& bench, int threads)
      : engine_(bench.engine(run_of(threads, 1, 0, bench.registries()), Side::speculative, {})) {
    for (const ProductShape& s : demo_shapes())
      operations += 2.0 * double(s.weights()) * (s.name == "head" ? 1 : kPrompt);
  }
  void sample() {
    for (int n = 0; n < 2; ++n) {
      Request r;
      for (int i = 0; i < kPrompt; ++i) r.prompt.push_back(Token(i * 7919 % engine_->target().info().vocab));
      r.limits.max_new_tokens = 1;
      engine_->submit(std::move(r));
      const StepReport report = without_failures(engine_->step());
      if (n > 0) seconds_.push_back(report.phases.total);
    }
  }
  double seconds() const { return median(seconds_); }

  double operations = 0;  // of its products

 private:
  std::unique_ptr<Engine> engine_;
  std::vector<double> seconds_;
};

double weights_of(const std::vector<ProductShape>& shapes) {
  double all = 0;
  for (const ProductShape& s : shapes) all += double(s.weights());
  return all;
}

// The machine's read bandwidth for a set of so many bytes, and its peak of operations.
class Limit {
 public:
  Limit(CpuBackend& cpu, double bytes) : cpu_(cpu), probe_(cpu, std::int64_t(bytes)) {}
  void sample() { rates_.push_back(probe_.bytes_a_second()), peaks_.push_back(operations_a_second(cpu_)); }
  double seconds(double bytes) const { return bytes / median(rates_); }
  double peak() const { return median(peaks_); }
  double roofline(double bytes, double operations) const { return std::max(seconds(bytes), operations / peak()); }

 private:
  CpuBackend& cpu_;
  ReadProbe probe_;
  std::vector<double> rates_, peaks_;
};

// All measurements.
struct Scenarios {
  Workbench bench;
  CpuBackend& cpu;
  Serving one, eight, pair, pairs;
  ModelConfig shape = ModelConfig::load(locate("experiments/models/target"));
  PromptReading prompt;
  double weights = weights_of(demo_shapes());
  LongAttention row{cpu, shape, 2 * weights, 1}, rows{cpu, shape, 2 * weights, 8};
  Limit stream{cpu, 2 * weights}, near{cpu, row.bytes + 2 * weights},
      far{cpu, rows.bytes + 2 * weights};  // working sets of a step

  explicit Scenarios(int threads)
      : cpu(dynamic_cast<CpuBackend&>(bench.backend({{"device", "cpu"}, {"threads", threads}}))),
        one(bench, threads, 1, 0),
        eight(bench, threads, 8, 0),
        pair(bench, threads, 1, 4),
        pairs(bench, threads, 8, 4),
        prompt(bench, threads) {}

  void sample() {
    const auto each = [](auto&... measured) { (measured.sample(), ...); };
    each(stream, one, eight, pair, pairs, near, row, far, rows, prompt);
  }
  double roofline_of(const Serving& s, int n) const { return stream.roofline(s.bytes(), 2 * weights * n); }
};

Bar attention_bar(const char* name, const LongAttention& a, const Limit& limit) {
  const double traffic = limit.seconds(a.bytes);
  return {name, a.bytes, a.operations, a.seconds(), traffic, a.seconds() / traffic, "x the traffic roofline", 2, true};
}

}  // namespace

std::vector<Bar> measure_bars(int threads, int repeats) {
  Scenarios s(threads);
  for (int r = 0; r < repeats; ++r) s.sample();
  const double one = s.one.seconds(), eight = s.eight.seconds(), roofline = s.roofline_of(s.one, 1),
               work = s.prompt.operations, read = s.prompt.seconds();
  return {{"decode, batch 1", s.one.bytes(), 2 * s.weights, one, roofline, roofline / one, "of the roofline's rate",
           0.5, false},
          {"decode, batch 8", s.eight.bytes(), 16 * s.weights, eight, s.roofline_of(s.eight, 8), 8 * one / eight,
           "x the tokens/s of batch 1", 3.5, false},
          {"round of 4 drafts, batch 1", 0, 0, s.pair.seconds(), 0, s.pair.overhead(), "of the step outside forwards",
           0.08, true},
          {"round of 4 drafts, batch 8", 0, 0, s.pairs.seconds(), 0, s.pairs.overhead(), "of the step outside forwards",
           0.05, true},
          attention_bar("attention to 4096 slots, batch 1", s.row, s.near),
          attention_bar("attention to 4096 slots, batch 8", s.rows, s.far),
          {"prompt of 512", 2 * s.weights, work, read, s.stream.roofline(2 * s.weights, work),
           work / read / s.stream.peak(), "of the peak", 0.3, false}};
}

void print_bars(const std::vector<Bar>& bars) {
  std::printf("\nbars, whole steps of the demo pair:\n%34s %9s %9s %10s %11s   %s\n", "", "MB", "GFLOP", "time us",
              "roofline us", "figure");
  const auto or_dash = [](double v, int digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*f", digits, v);
    return v > 0 ? std::string(text) : std::string("-");
  };
  for (const Bar& b : bars)
    std::printf("%-34s %9s %9s %10.1f %11s   %.3f %s (%s %g: %s)\n", b.name.c_str(), or_dash(b.bytes / 1e6, 1).c_str(),
                or_dash(b.operations / 1e9, 3).c_str(), b.seconds * 1e6, or_dash(b.roofline * 1e6, 1).c_str(), b.figure,
                b.unit.c_str(), b.at_most ? "at most" : "at least", b.bar, b.met() ? "met" : "MISSED");
}

Json as_json(const std::vector<Bar>& bars) {
  Json all = bars;
  for (std::size_t i = 0; i < bars.size(); ++i) all[i]["met"] = bars[i].met();
  return all;
}

}  // namespace foretoken
