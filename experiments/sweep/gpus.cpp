#include "experiments/sweep/gpus.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include <spdlog/spdlog.h>

#include "experiments/report/results.h"
#include "experiments/sweep/child_process.h"
#include "experiments/sweep/interrupt.h"
#include "experiments/sweep/progress.h"
#include "experiments/sweep/shards.h"
#include "experiments/sweep/unfinished.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> listed(const std::string& text) {
  std::vector<std::string> all;
  for (std::size_t at = 0; !text.empty() && at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    all.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 5 && text.find_first_not_of("0123456789") == std::string::npos;
}

// The file of results, and what it and the files of processes hold together.
class Gathered {
 public:
  explicit Gathered(const fs::path& file) : file_(file), unfinished_(file) {
    for (Result& result : load_results(file)) merged_.add(std::move(result));
    for (const fs::path& part : left_behind()) take(part);
  }

  // "NAME.process-2.jsonl" of "NAME.jsonl".
  fs::path part_of(int number) const {
    return fs::path(file_.path()).replace_extension(kPart + std::to_string(number) + ".jsonl");
  }

  // Appends what a process measured, and removes its file.
  void take(const fs::path& part) {
    const JsonLinesFile alone(part, result_lines());  // locked: its process may not have ended
    Unfinished(part).move_all(unfinished_);
    for (const Result& result : results_of(alone.lines(), part))
      if (merged_.add(result)) file_.append(result);
    fs::remove(part);
  }

  // A file for the process of these runs, with the results and alternations that they have.
  void begin(const fs::path& part, const std::vector<Run>& runs) const {
    JsonLinesFile file(part, result_lines());
    for (const Run& run : runs)
      if (const Result* const result = merged_.of(run.key)) file.append(to_json(*result));
    for (const Run& run : runs) unfinished_.move(run.key, Unfinished(part));
  }

  const MergedResults& merged() const { return merged_; }

 private:
  static constexpr const char* kPart = ".process-";

  std::vector<fs::path> left_behind() const {
    const std::string prefix = file_.path().stem().string() + kPart;
    std::vector<fs::path> parts;
    for (const auto& entry : fs::directory_iterator(fs::absolute(file_.path()).parent_path())) {
      const std::string name = entry.path().filename().string(), stem = entry.path().stem().string();
      if (name.starts_with(prefix) && name.ends_with(".jsonl") && is_number(stem.substr(prefix.size())))
        parts.push_back(entry.path());
    }
    std::ranges::sort(parts);
    return parts;
  }

  ResultsFile file_;  // locked
  Unfinished unfinished_;
  MergedResults merged_;
};

// The processes of a sweep, by shard.
class Processes {
 public:
  Processes(const std::vector<Run>& runs, const GpuSweep& sweep, const Gathered& gathered) : sweep_(sweep) {
    const int count = int(sweep.gpus.size());
    for (int k = 1; k <= count; ++k) parts_.push_back(gathered.part_of(k));
    for (int k = 1; k <= count; ++k) gathered.begin(parts_[k - 1], runs_of({k, count}, runs, sweep.share_baselines));
    for (int k = 1; k <= count; ++k) {
      std::vector<std::string> arguments = sweep.command;
      const std::string shard = std::to_string(k) + "/" + std::to_string(count);
      for (const std::string& word : {std::string("--shard"), shard, std::string("--results"), parts_[k - 1].string()})
        arguments.push_back(word);
      processes_.emplace_back(arguments, "CUDA_VISIBLE_DEVICES", sweep.gpus[k - 1]);
    }
  }

  // Until all have ended; `tick` is called several times a second.
  void wait(const std::function<void()>& tick) {
    bool passed = false;
    while (std::ranges::any_of(processes_, [](ChildProcess& p) { return !p.ended(); })) {
      if (interrupted() && !std::exchange(passed, true))
        for (const ChildProcess& p : processes_) p.terminate();
      tick();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  // How many did not end with 0; of those that a signal ended a sentence is said.
  int failures() {
    int failed = 0;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      const Ended ended = *processes_[i].ended();
      failed += !ended.well();
      if (ended.signal != 0 && !interrupted())
        spdlog::error("the process of GPU {} was ended by signal {} ({}); its finished runs are kept", sweep_.gpus[i],
                      ended.signal, strsignal(ended.signal));
    }
    return failed;
  }

  const std::vector<fs::path>& parts() const { return parts_; }

 private:
  const GpuSweep& sweep_;
  std::vector<fs::path> parts_;
  std::vector<ChildProcess> processes_;
};

// All runs, by a process on the first GPU: this one uses none. Whether nothing speaks against them; that process says
// what does.
bool rehearsed(const GpuSweep& sweep) {
  std::vector<std::string> arguments = sweep.command;
  for (const std::string& word : {std::string("--rehearse"), std::string("--results"), sweep.results.string()})
    arguments.push_back(word);
  ChildProcess process(arguments, "CUDA_VISIBLE_DEVICES", sweep.gpus.front());
  for (bool passed = false; !process.ended();) {
    if (interrupted() && !std::exchange(passed, true)) process.terminate();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return process.ended()->well();
}

// Lines of files that other processes append to.
int lines_of(const std::vector<fs::path>& files) {
  std::ptrdiff_t lines = 0;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    lines += std::count(std::istreambuf_iterator<char>(in), {}, '\n');
  }
  return int(lines);
}

}  // namespace

std::vector<std::string> visible_gpus(const std::vector<std::string>& named, const char* visible) {
  std::vector<std::string> gpus;
  const std::vector<std::string> all = visible ? listed(visible) : std::vector<std::string>{};
  for (const std::string& name : named) {
    const bool inside = visible && is_number(name);
    if (inside && std::stoul(name) >= all.size())
      throw Error("--gpus names GPU " + name + ", but CUDA_VISIBLE_DEVICES=" + visible + " leaves numbers below " +
                  std::to_string(all.size()) + "; name one of these, or unset it");
    const std::string gpu = inside ? all[std::stoul(name)] : name;
    if (gpu.empty() || std::ranges::find(gpus, gpu) != gpus.end())
      throw Error("--gpus wants different GPUs, as in --gpus 0,1,2,3, not '" + name + "' here; name each once");
    gpus.push_back(gpu);
  }
  return gpus;
}

SweepOutcome run_on_gpus(const std::vector<Run>& runs, const GpuSweep& sweep) {
  SweepOutcome out;
  watch_interrupts();
  if (!sweep.keep_going && !rehearsed(sweep)) {
    out.interrupted = interrupted();
    out.refused = out.interrupted ? 0 : int(runs.size());
    return out;
  }
  Gathered gathered(sweep.results);
  const auto measured = [&](const Run& run) { return gathered.merged().measured(run.key); };
  const int kept = int(std::ranges::count_if(runs, measured));
  {
    Processes processes(runs, sweep, gathered);
    Progress progress(sweep.title, int(runs.size()), kept, sweep.quiet);
    const int begun = lines_of(processes.parts());
    processes.wait([&] { progress.show(kept + lines_of(processes.parts()) - begun, "", 0); });
    progress.clear();
    out.failed = processes.failures();
    for (const fs::path& part : processes.parts()) gathered.take(part);
  }
  out.interrupted = interrupted();
  for (const Run& run : runs)
    if (const Result* const result = gathered.merged().of(run.key)) out.lines.push_back(*result);
  if (const auto left = std::ptrdiff_t(runs.size()) - std::ranges::count_if(runs, measured); left > 0)
    spdlog::warn("{} of {} runs are not measured; the others are in {}, and the same command measures these", left,
                 runs.size(), sweep.results.string());
  return out;
}

}  // namespace foretoken
