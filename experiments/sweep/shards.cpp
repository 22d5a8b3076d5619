#include "experiments/sweep/shards.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "experiments/report/results.h"
#include "experiments/session/interrupt.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/jobs.h"
#include "experiments/sweep/progress.h"
#include "experiments/sweep/rounds.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr double kAllPrompts = 400;  // taken for the prompts of a file, where /workload/limit is 0
constexpr double kAllTurns = 3;      // taken for the turns of a conversation, where /workload/turns is 0

// Runs that one shard must have together, as indices into the sweep.
struct Group {
  std::vector<std::size_t> runs;
  double cost = 0;
  std::string key;  // the least of its runs
};

std::vector<Group> groups_of(const std::vector<Run>& runs, bool share_baselines) {
  std::map<std::string, std::size_t> known;  // places of groups, by their baseline
  std::vector<Group> groups;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto [place, fresh] =
        known.try_emplace(share_baselines ? baseline_of(runs[i].document) : runs[i].key, groups.size());
    if (fresh) groups.emplace_back();
    Group& group = groups[place->second];
    group.key = fresh ? runs[i].key : std::min(group.key, runs[i].key);
    // The baseline, what is served before a warm measurement, and speculation.
    group.cost += rounds_of(runs[i].document) * ((fresh ? 2 : 1) + (is_warm(runs[i].document) ? 1 : 0));
    group.runs.push_back(i);
  }
  return groups;
}

}  // namespace

Shard read_shard(const std::string& text) {
  Shard shard;
  const char *const begin = text.data(), *const end = begin + text.size();
  const auto [slash, bad] = std::from_chars(begin, end, shard.number);
  bool fits = bad == std::errc() && slash != end && *slash == '/';
  if (fits) {
    const auto [rest, wrong] = std::from_chars(slash + 1, end, shard.count);
    fits = wrong == std::errc() && rest == end && shard.count <= kMostShards;
  }
  if (!fits || shard.number < 1 || shard.number > shard.count)
    throw Error("--shard wants K/N, the number of a shard from 1 to N, as in --shard 2/8, with N at most " +
                std::to_string(kMostShards) + ", not '" + text + "'");
  return shard;
}

double rounds_of(const json& run) {
  const json &w = run.at("workload"), &m = run.at("measure");
  const double batch = run.at("engine").at("batch"), repeats = w.at("repeats"), limit = w.at("limit"),
               turns = w.at("turns");
  const double requests = std::max((limit > 0 ? limit : kAllPrompts) * repeats, double(kRequestsASlot) * batch) *
                          run.at("sampling").at("samples").get<double>();
  return requests * (turns > 0 ? turns : kAllTurns) / batch * w.at("max_new_tokens").get<double>() *
         m.at("repeats").get<double>();
}

std::vector<Run> runs_of(const Shard& shard, const std::vector<Run>& runs, bool share_baselines) {
  std::vector<Group> groups = groups_of(runs, share_baselines);
  std::ranges::sort(groups,
                    [](const Group& a, const Group& b) { return a.cost != b.cost ? a.cost > b.cost : a.key < b.key; });
  std::vector<double> load(std::size_t(shard.count), 0);
  std::vector<std::size_t> chosen;
  for (const Group& group : groups) {
    const auto least = std::ranges::min_element(load);
    *least += group.cost;
    if (least - load.begin() == shard.number - 1) chosen.insert(chosen.end(), group.runs.begin(), group.runs.end());
  }
  std::ranges::sort(chosen);
  std::vector<Run> mine;
  for (const std::size_t i : chosen) mine.push_back(runs[i]);
  return mine;
}

std::filesystem::path file_of(const Shard& shard, const std::filesystem::path& results) {
  std::filesystem::path file = results;
  return file.replace_extension(".shard-" + std::to_string(shard.number) + "-of-" + std::to_string(shard.count) +
                                results.extension().string());
}

namespace {

// How a process ended: an exit code, or else a signal.
struct Ended {
  int code = 0, signal = 0;
  bool well() const { return code == 0 && signal == 0; }
};

class ChildProcess {
 public:
  // Starts this program with these arguments and NAME=VALUE in its environment; its standard output is dropped. It is a
  // process group of its own, so that Ctrl-C comes from its parent alone, and gets SIGTERM where its parent dies.
  ChildProcess(const std::vector<std::string>& arguments, const std::string& name, const std::string& value);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess(ChildProcess&& other) noexcept : process_(std::exchange(other.process_, -1)), ended_(other.ended_) {}
  ~ChildProcess();  // ends it

  const std::optional<Ended>& ended();  // without waiting
  void terminate() const;               // SIGTERM

 private:
  pid_t process_ = -1;
  std::optional<Ended> ended_;
};

constexpr int kNotStarted = 127;

// Of this process, with NAME=VALUE in place of another value.
std::vector<std::string> environment_with(const std::string& name, const std::string& value) {
  std::vector<std::string> all{name + "=" + value};
  for (char** entry = environ; *entry; ++entry)
    if (!std::string(*entry).starts_with(name + "=")) all.push_back(*entry);
  return all;
}

std::vector<char*> pointers_of(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In the new process, where only calls that are safe in a signal handler may be made.
[[noreturn]] void become(char* const* arguments, char* const* environment, pid_t parent, int null) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kNotStarted);  // it died before that
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  ::execve("/proc/self/exe", arguments, environment);
  ::_exit(kNotStarted);
}

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const std::string& name,
                           const std::string& value) {
  std::vector<std::string> words{"foretoken"}, environment = environment_with(name, value);
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<char*> word_pointers = pointers_of(words), environment_pointers = pointers_of(environment);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const pid_t parent = ::getpid();
  process_ = null < 0 ? -1 : ::fork();
  const std::string why = std::strerror(errno);
  if (process_ == 0) become(word_pointers.data(), environment_pointers.data(), parent, null);
  if (null >= 0) ::close(null);
  if (process_ < 0) throw Error("no other process can be started (" + why + "); end others, then start it again");
}

ChildProcess::~ChildProcess() {
  if (process_ < 0 || ended()) return;
  terminate();
  ::waitpid(process_, nullptr, 0);
}

const std::optional<Ended>& ChildProcess::ended() {
  int status = 0;
  if (ended_) return ended_;
  const pid_t found = ::waitpid(process_, &status, WNOHANG);
  if (found < 0 && errno == ECHILD) ended_ = Ended{1, 0};  // SIGCHLD is ignored: nobody knows how it ended
  if (found != process_) return ended_;
  ended_ = WIFSIGNALED(status) ? Ended{0, WTERMSIG(status)} : Ended{WEXITSTATUS(status), 0};
  return ended_;
}

void ChildProcess::terminate() const {
  if (process_ > 0 && !ended_) ::kill(process_, SIGTERM);
}

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

// Until all have ended; `tick` is called several times a second.
void wait_for(std::span<ChildProcess> processes, const std::function<void()>& tick) {
  bool passed = false;
  while (std::ranges::any_of(processes, [](ChildProcess& p) { return !p.ended(); })) {
    if (interrupted() && !std::exchange(passed, true))
      for (const ChildProcess& p : processes) p.terminate();
    tick();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

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
      arguments.insert(arguments.end(), {"--shard", shard, "--results", parts_[k - 1].string()});
      processes_.emplace_back(arguments, "CUDA_VISIBLE_DEVICES", sweep.gpus[k - 1]);
    }
  }

  void wait(const std::function<void()>& tick) { wait_for(processes_, tick); }

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
  arguments.insert(arguments.end(), {"--rehearse", "--results", sweep.results.string()});
  ChildProcess process(arguments, "CUDA_VISIBLE_DEVICES", sweep.gpus.front());
  wait_for({&process, 1}, [] {});
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
