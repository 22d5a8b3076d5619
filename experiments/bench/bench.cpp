#include "experiments/bench/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <random>

#include <nlohmann/json.hpp>

#include "experiments/report/machine.h"
#include "experiments/report/results.h"
#include "experiments/report/statistics.h"
#include "foretoken_version.h"
#include "framework/model/in_parallel.h"
#include "framework/model/model_files.h"
#include "framework/model/shapes.h"
#include "kernels/cpu/ceilings.h"
#include "kernels/error.h"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {
namespace {

using Json = nlohmann::json;

const std::vector<int> kRows = {1, 2, 4, 5, 8, 16, 32, 64};
constexpr double kMiB = 1 << 20;

// The numbers of one run, in seconds, bytes and operations.
struct Findings {
  std::string machine;
  std::vector<std::pair<std::string, double>> peaks;   // by instruction set
  std::vector<std::pair<std::int64_t, double>> reads;  // bytes, bytes a second
  Ceiling ceiling;                                     // at the size of the weights
  double fork = 0;
  std::string dtype;  // of the weights
  std::vector<ProductShape> shapes;
  std::int64_t bytes = 0;  // of the weights
  double weights = 0;
  std::map<int, std::vector<double>> seconds;  // rows -> by shape, then the total
};

// The weights are read last, so the caches hold what they hold in a decode loop.
std::vector<ReadProbe> probes_of(CpuBackend& cpu, const WeightStream& stream) {
  std::vector<ReadProbe> probes;
  for (const double size : {kMiB, 8 * kMiB, 28 * kMiB, 64 * kMiB}) probes.emplace_back(cpu, std::int64_t(size));
  std::vector<Weight> weights;
  for (const WeightStream::Step& step : stream.steps) weights.push_back(step.weight);
  probes.emplace_back(cpu, weights);
  return probes;
}

std::vector<std::pair<std::string, double>> peaks_by_instructions(int threads, int repeats) {
  std::vector<std::pair<std::string, double>> peaks;
  for (const Operations* operations : cpu_operations()) {
    CpuBackend cpu(threads, *operations);
    std::vector<double> each;
    for (int r = 0; r < repeats; ++r) each.push_back(operations_a_second(cpu));
    peaks.emplace_back(operations->name, median(each));
  }
  return peaks;
}

// All measurements alternate, so other load on the machine affects all alike.
Findings measure(CpuBackend& cpu, const std::vector<ProductShape>& shapes, const std::string& dtype, int repeats,
                 const std::vector<int>& rows_of_products) {
  const WeightStream stream(cpu, shapes, dtype);
  const std::map<std::int64_t, Tensor> inputs = inputs_of(shapes, std::ranges::max(rows_of_products));
  std::vector<ReadProbe> probes = probes_of(cpu, stream);
  std::vector<std::vector<double>> reads(probes.size());
  std::vector<double> peaks, forks;
  std::map<int, std::vector<std::vector<double>>> times;  // rows -> by shape -> of each repeat
  for (int r = 0; r < repeats; ++r) {
    for (std::size_t i = 0; i < probes.size(); ++i) reads[i].push_back(probes[i].bytes_a_second());
    for (const int rows : rows_of_products) {
      for (int i = 0; i < ReadProbe::kWarmUp; ++i) stream.run(cpu, inputs, rows);
      const std::vector<double> seconds = stream.run(cpu, inputs, rows);
      times[rows].resize(seconds.size());
      for (std::size_t i = 0; i < seconds.size(); ++i) times[rows][i].push_back(seconds[i]);
    }
    peaks.push_back(operations_a_second(cpu)), forks.push_back(fork_seconds(cpu));
  }
  Findings f;
  f.machine = cpu.description(), f.dtype = dtype, f.shapes = stream.shapes, f.bytes = stream.bytes;
  for (const ProductShape& s : shapes) f.weights += double(s.weights());
  for (std::size_t i = 0; i < probes.size(); ++i) f.reads.emplace_back(probes[i].bytes(), median(reads[i]));
  f.ceiling = {f.reads.back().second, median(peaks)}, f.fork = median(forks);
  f.reads.pop_back();
  for (const auto& [rows, by_shape] : times)
    for (const auto& each : by_shape) f.seconds[rows].push_back(median(each));
  f.peaks = peaks_by_instructions(cpu.pool().threads(), std::min(repeats, 10));
  return f;
}

void print(const Findings& f) {
  std::printf("%s\n\nreads, all threads:", f.machine.c_str());
  for (const auto& [bytes, rate] : f.reads) std::printf("  %.0f MiB %.0f GB/s", double(bytes) / kMiB, rate / 1e9);
  std::printf("\nmultiply-add peak, all threads:");
  for (const auto& [name, rate] : f.peaks) std::printf("  %s %.0f GFLOP/s", name.c_str(), rate / 1e9);
  std::printf("\nfork and join of all threads: %.2f us", f.fork * 1e6);
  std::printf(
      "\n\nproducts of one forward, %s weights, %.1f MB streamed: bandwidth at that size %.1f GB/s, peak %.0f "
      "GFLOP/s\n",
      f.dtype.c_str(), double(f.bytes) / 1e6, f.ceiling.bytes_a_second / 1e9, f.ceiling.operations_a_second / 1e9);
  std::printf(
      "roofline(n) = max(bytes / bandwidth, operations / peak)\n\n%6s %10s %11s %8s %10s %8s %9s   ratio by product:",
      "rows", "time us", "roofline us", "ratio", "of first", "GB/s", "GFLOP/s");
  for (const ProductShape& s : f.shapes) std::printf(" %8s", s.name.c_str());
  std::printf("\n");
  const double one = f.seconds.begin()->second.back();
  for (const auto& [rows, seconds] : f.seconds) {
    const double time = seconds.back(), roofline = f.ceiling.roofline(f.shapes, rows);
    std::printf("%6d %10.1f %11.1f %8.2f %9.2fx %8.1f %9.0f %20s", rows, time * 1e6, roofline * 1e6, time / roofline,
                time / one, double(f.bytes) / time / 1e9, 2 * f.weights * rows / time / 1e9, "");
    for (std::size_t i = 0; i < f.shapes.size(); ++i)
      std::printf(" %8.2f", seconds[i] / f.ceiling.roofline({f.shapes[i]}, rows));
    std::printf("\n");
  }
}

Json as_json(const Findings& f) {
  Json j{{"description", f.machine},
         {"dtype", f.dtype},
         {"bytes", f.bytes},
         {"bytes_per_second", f.ceiling.bytes_a_second},
         {"operations_per_second", f.ceiling.operations_a_second},
         {"fork_seconds", f.fork}};
  for (const auto& [bytes, rate] : f.reads) j["reads"].push_back({{"bytes", bytes}, {"bytes_per_second", rate}});
  for (const auto& [name, rate] : f.peaks) j["peaks"][name] = rate;
  for (const auto& [rows, seconds] : f.seconds) {
    Json line{{"rows", rows}, {"seconds", seconds.back()}, {"roofline", f.ceiling.roofline(f.shapes, rows)}};
    line["ratio"] = seconds.back() / f.ceiling.roofline(f.shapes, rows);
    for (std::size_t i = 0; i < f.shapes.size(); ++i)
      line["by_product"][f.shapes[i].name] = {{"seconds", seconds[i]},
                                              {"roofline", f.ceiling.roofline({f.shapes[i]}, rows)}};
    j["products"].push_back(std::move(line));
  }
  return j;
}

}  // namespace

std::vector<ProductShape> demo_shapes() {
  return {{"qkv", 640, 384, 8},
          {"o", 384, 384, 8},
          {"gate_up", 2048, 384, 8},
          {"down", 384, 1024, 8},
          {"head", 4096, 384, 1}};
}

std::vector<ProductShape> shapes_of(const ModelConfig& m) {
  if (m.mixture)
    throw Error(
        "a mixture of experts (" + m.architecture +
        ") has products of groups of rows, which this bench does not measure; use foretoken bench --steps, or a "
        "dense model");
  if (m.latent)
    throw Error("latent attention (" + m.architecture +
                ") has products of each head, which this bench does not measure; use foretoken bench --steps, or "
                "another model");
  const std::int64_t width = m.width, q = std::int64_t(m.heads) * m.head_size,
                     kv = std::int64_t(m.kv_heads) * m.head_size, ffn = m.ffn;
  // Enough layers to exceed the caches give the same result as all of them.
  const std::int64_t layer = width * (2 * (q + kv) + 3 * ffn) * 2, most = std::int64_t(2) << 30;
  const int layers = int(std::clamp<std::int64_t>(most / layer, 1, m.layers));
  return {{"qkv", q + 2 * kv, width, layers},
          {"o", width, q, layers},
          {"gate_up", 2 * ffn, width, layers},
          {"down", width, ffn, layers},
          {"head", m.vocab, width, 1}};
}

double Ceiling::roofline(const std::vector<ProductShape>& shapes, int rows) const {
  double weights = 0, bytes = 0;
  for (const ProductShape& s : shapes) {
    weights += double(s.weights());
    bytes += double(s.weights()) * s.weight_bytes;
  }
  return std::max(bytes / bytes_a_second, 2.0 * rows * weights / operations_a_second);
}

namespace {

constexpr const char* kNoBars =
    "the bars are for the demo pair in bf16 with the best instructions and 1 to 64 rows: --model, --dtype, --rows and "
    "--instructions leave them out";

// The bars of products, for the demo target's shapes and the best instructions.
std::vector<Bar> product_bars(const Findings& f) {
  std::vector<Bar> bars;
  for (const auto& [rows, bar] : {std::pair(1, 1.67), std::pair(8, 1.5), std::pair(32, 1.5)}) {
    const double seconds = f.seconds.at(rows).back(), roofline = f.ceiling.roofline(f.shapes, rows);
    bars.push_back({"products, " + std::to_string(rows) + (rows == 1 ? " row" : " rows"), double(f.bytes),
                    2 * f.weights * rows, seconds, roofline, seconds / roofline, "x the roofline", bar, true});
  }
  return bars;
}

// A published shape by its name, or a directory or file.
ModelConfig config_of(const std::string& model) {
  const auto& names = shape_names();
  return std::ranges::find(names, model) != names.end() ? published_shape(model) : ModelFiles::open(model)->config();
}

}  // namespace

int run_bench(const BenchOptions& options) {
  const bool demo = options.model.empty(),
             bars_too = demo && options.instructions.empty() && options.dtype == "bf16" && options.rows.empty();
  if (options.dtype != "bf16" && options.dtype != "f32" && !find_precision(options.dtype))
    throw Error("unknown dtype '" + options.dtype + "'; known: bf16, f32 and the formats of /target/dtype");
  BenchFile results(options.results, "products");
  const std::vector<ProductShape> shapes = demo ? demo_shapes() : shapes_of(config_of(options.model));
  const int repeats = std::max(options.repeats, 1);
  const std::unique_ptr<Backend> backend = make_cpu_backend(options.threads, options.instructions);
  const Findings findings = measure(static_cast<CpuBackend&>(*backend), shapes, options.dtype, repeats,
                                    options.rows.empty() ? kRows : options.rows);
  std::vector<Bar> bars;
  if (bars_too) {
    bars = product_bars(findings);
    std::ranges::move(measure_bars(options.threads, repeats), std::back_inserter(bars));
  }
  Json line = as_json(findings);
  if (bars_too)
    line["bars"] = as_json(bars);
  else
    line["bars_left_out"] = kNoBars;
  line.update({{"machine", to_json(machine_of(*backend))}, {"commit", kCommit}, {"date", utc_now()}});
  if (options.json) {
    std::printf("%s\n", line.dump(2).c_str());
  } else {
    print(findings);
    if (bars_too)
      print_bars(bars);
    else
      std::printf("\n%s.\n", kNoBars);
  }
  results.append(line);
  return 0;
}

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

WeightStream::WeightStream(Backend& backend, const std::vector<ProductShape>& all, const std::string& dtype)
    : shapes(all) {
  int layers = 1;
  for (const ProductShape& s : shapes) layers = std::max(layers, s.layers);
  for (int l = 0; l < layers; ++l)
    for (std::size_t i = 0; i < shapes.size(); ++i)
      if (shapes[i].layers == layers) add(backend, i, dtype);
  for (std::size_t i = 0; i < shapes.size(); ++i)
    if (shapes[i].layers < layers) add(backend, i, dtype);
}

std::vector<double> WeightStream::run(Backend& backend, const std::map<std::int64_t, Tensor>& inputs, int rows) const {
  std::vector<double> seconds(shapes.size() + 1, 0.0);
  const auto start = Clock::now();
  auto before = start;
  for (const Step& step : steps) {
    backend.linear(inputs.at(shapes[step.shape].in).rows(0, rows), step.weight);
    const auto now = Clock::now();
    seconds[step.shape] += std::chrono::duration<double>(now - before).count();
    before = now;
  }
  seconds.back() = std::chrono::duration<double>(before - start).count();
  return seconds;
}

void WeightStream::add(Backend& backend, std::size_t i, const std::string& dtype) {
  Tensor values = Tensor::host({shapes[i].out, shapes[i].in}, dtype == "f32" ? DType::f32 : DType::bf16);
  std::minstd_rand engine(unsigned(steps.size()) + 1);
  for (std::int64_t k = 0; k < values.elements(); ++k) {
    const float v = float(engine() % 1024) / 512 - 1;
    if (dtype == "f32")
      values.data<float>()[k] = v;
    else
      values.data<bf16>()[k] = bf16(v);
  }
  Weight w = Weight::dense(values);
  if (const Precision* precision = find_precision(dtype)) w = quantize(w, *precision, by_all_cores);
  w = backend.prepare(std::move(w));
  w.values = {};  // products read the packed copy
  bytes += w.bytes();
  shapes[i].weight_bytes = double(w.bytes()) / double(shapes[i].out * shapes[i].in);
  steps.push_back({i, std::move(w)});
}

std::map<std::int64_t, Tensor> inputs_of(const std::vector<ProductShape>& shapes, int rows) {
  std::map<std::int64_t, Tensor> inputs;
  for (const ProductShape& s : shapes) {
    inputs[s.in] = Tensor::host({rows, s.in}, DType::f32);
    for (float& v : inputs[s.in].values<float>()) v = 0.5f;
  }
  return inputs;
}

}  // namespace foretoken
