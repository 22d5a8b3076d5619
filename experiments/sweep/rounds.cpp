#include "experiments/sweep/rounds.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include <spdlog/spdlog.h>

#include "experiments/session/interrupt.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/arrivals.h"
#include "experiments/sweep/provenance.h"
#include "framework/components/registry.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* kEnd = ".json";

// Null where it is absent or damaged, as after a power failure, or where it is of another run or number than its name
// says, as after files were renamed.
json read(const fs::path& file, const std::string& key, int k) {
  std::ifstream in(file, std::ios::binary);
  json value = in ? json::parse(in, nullptr, false) : json();
  const bool fits = value.is_object() && value.value("key", json()) == key && value.value("alternation", json()) == k;
  if (fits && value.value("schema", json()) != kResultSchema)
    throw Error(file.parent_path().string() +
                " holds alternations that another version measured, which this one cannot go on from; remove that "
                "folder to measure them again");
  return fits ? value : json();
}

// The folder is removed only where nothing else is in it.
void remove_if_empty(const fs::path& folder) {
  std::error_code ignored;
  fs::remove(folder, ignored);
}

// The result of a run with the alternations that it has.
Result result_so_far(const Unfinished& unfinished, const std::string& key) {
  std::vector<MeasuredAlternation> done;
  for (int k = 0, count = unfinished.count(key); k < count; ++k) done.push_back(alternation_of(unfinished.at(key, k)));
  if (done.empty()) throw Error("the alternations are damaged");
  const Run run{done.back().run, done.back().axes, key};
  if (key_of(run.document) != key) throw Error("the alternations are of another run than their names say");
  const DoneOf progress{.done = int(done.size()), .of = run.document.at("measure").at("repeats")};
  Result result = result_of(run, std::move(done));
  result.unfinished = progress;
  return result;
}

}  // namespace

std::vector<Result> load_with_unfinished(const fs::path& results) {
  // The folder first: a run that ends meanwhile is then in the file.
  const Unfinished unfinished(results);
  std::map<std::string, std::pair<Result, std::string>> found;  // results, or why there is none
  for (const std::string& key : unfinished.keys()) {
    auto& [result, failure] = found[key];
    failure = failure_of([&, &into = result] { into = result_so_far(unfinished, key); });
  }
  std::vector<Result> all = load_results(results);
  for (const Result& result : all) found.erase(result.key);  // also one that failed stays in sight
  for (auto& [key, one] : found)
    if (one.second.empty())
      all.push_back(std::move(one.first));
    else
      spdlog::warn("a run in {} is left out: {}", unfinished.folder().string(), one.second);
  return all;
}

Unfinished::Unfinished(const fs::path& results) : folder_(results) { folder_ += ".unfinished"; }

fs::path Unfinished::file(const std::string& key, int k) const {
  return folder_ / (key + "-" + std::to_string(k) + kEnd);
}

void Unfinished::add(const json& alternation) {
  const fs::path whole = file(alternation.at("key"), alternation.at("alternation"));
  fs::path part = whole;
  part += ".part";
  std::error_code error;
  fs::create_directories(folder_, error);
  {
    std::ofstream out(part, std::ios::binary);
    out << alternation.dump(-1, ' ', false, json::error_handler_t::replace) << std::flush;
    if (!out) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) fs::rename(part, whole, error);
  if (error)
    throw Error("the alternation cannot be kept in " + folder_.string() + " (" + error.message() +
                "); make room there, or name another file with --results");
}

int Unfinished::count(const std::string& key) const {
  int k = 0;
  while (!read(file(key, k), key, k).is_null()) ++k;
  return k;
}

json Unfinished::at(const std::string& key, int k) const {
  json found = read(file(key, k), key, k);
  if (found.is_null())
    throw Error(file(key, k).string() +
                " is gone, which the sweep has written; start it again, which measures it anew");
  return found;
}

std::vector<fs::path> Unfinished::files() const {
  std::vector<fs::path> all;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder_, absent)) all.push_back(entry.path());
  return all;
}

std::set<std::string> Unfinished::keys() const {
  std::set<std::string> keys;
  for (const fs::path& path : files()) {
    const std::string name = path.filename().string();
    if (path.extension() == kEnd) keys.insert(name.substr(0, name.rfind('-')));
  }
  return keys;
}

void Unfinished::drop(const std::string& key) {
  for (const fs::path& path : files())
    if (path.filename().string().starts_with(key + "-")) fs::remove(path);
  remove_if_empty(folder_);
}

void Unfinished::drop_all() {
  for (const fs::path& path : files())
    if (path.extension() == kEnd || path.extension() == ".part") fs::remove(path);
  remove_if_empty(folder_);
}

int Unfinished::drop_orphans(const std::string& sweep, const std::set<std::string>& keys) {
  int dropped = 0;
  for (const fs::path& path : files()) {
    const std::string name = path.filename().string(), key = name.substr(0, name.rfind('-'));
    if (path.extension() != kEnd || keys.contains(key)) continue;
    std::ifstream in(path, std::ios::binary);
    const json value = json::parse(in, nullptr, false);
    if (!value.is_object() || value.value("sweep", json()) != sweep) continue;
    in.close(), fs::remove(path), ++dropped;
  }
  remove_if_empty(folder_);
  return dropped;
}

void Unfinished::move_files(const std::vector<fs::path>& files, const Unfinished& to) const {
  for (const fs::path& path : files) {
    if (path.extension() != kEnd) continue;
    fs::create_directories(to.folder_);
    fs::rename(path, to.folder_ / path.filename());
  }
  remove_if_empty(folder_);
}

void Unfinished::move(const std::string& key, const Unfinished& to) const {
  std::vector<fs::path> own = files();
  std::erase_if(own, [&](const fs::path& path) { return !path.filename().string().starts_with(key + "-"); });
  move_files(own, to);
}

void Unfinished::move_all(const Unfinished& to) const { move_files(files(), to); }

namespace {

// What the components of a run load.
std::string loads(const json& run, const Registries& registries) {
  json found = json::array();
  const ComponentFiles files = component_files(run, registries);
  for (const ModelChoice& c : files.models) found.push_back({c.text(), c.dtype, c.head_dtype, c.kv_dtype});
  for (const std::string& path : files.paths) found.push_back(path);
  return found.dump();
}

}  // namespace

std::string target_of_group(const json& run) {
  json key{run.at("target")};
  for (const char* field : {"device", "threads", "numerics"}) key.push_back(run.at("engine").value(field, json()));
  return key.dump();
}

std::vector<std::vector<Run>> groups_of(const std::vector<Run>& runs, const Registries& registries) {
  std::map<std::string, std::size_t> known;  // places of groups, by their target
  std::vector<std::vector<std::pair<std::string, const Run*>>> groups;
  for (const Run& run : runs) {
    const auto [place, fresh] = known.try_emplace(target_of_group(run.document), groups.size());
    if (fresh) groups.emplace_back();
    groups[place->second].push_back({loads(run.document, registries), &run});
  }
  std::vector<std::vector<Run>> found;
  for (auto& group : groups) {
    // Neighbours by what they load, in the order in which that is met first.
    std::map<std::string, std::size_t> first;
    for (const auto& [loaded, run] : group) first.try_emplace(loaded, first.size());
    std::ranges::stable_sort(group, {}, [&](const auto& entry) { return first.at(entry.first); });
    found.emplace_back();
    for (const auto& [loaded, run] : group) found.back().push_back(*run);
  }
  return found;
}

std::set<std::string> first_looks(const std::vector<Run>& runs) {
  std::map<std::string, std::size_t> numbers;    // of values
  std::vector<std::vector<std::size_t>> values;  // of each run
  for (const Run& run : runs) {
    values.emplace_back();
    for (const auto& [pointer, value] : run.axes.items())
      values.back().push_back(numbers.try_emplace(pointer + value.dump(), numbers.size()).first->second);
  }
  std::vector<long> times(numbers.size());  // that each was chosen
  const auto score = [&](std::size_t run) {
    std::pair<long, long> found;  // values that none has yet, and how seldom the others were chosen
    for (const std::size_t value : values[run]) {
      found.first += times[value] == 0;
      found.second -= times[value];
    }
    return found;
  };
  std::set<std::string> keys;
  for (std::size_t missing = numbers.size(), begin = 0; missing > 0;) {
    while (score(begin).first == 0) ++begin;
    std::size_t best = begin;
    std::pair<long, long> most = score(begin);
    for (std::size_t i = begin + 1; i < runs.size() && std::cmp_less(most.first, values[best].size()); ++i)
      if (const std::pair<long, long> now = score(i); now > most) {
        best = i;
        most = now;
      }
    keys.insert(runs[best].key);
    for (const std::size_t value : values[best]) ++times[value];
    missing -= std::size_t(most.first);
  }
  return keys;
}

std::vector<Run> first_round(const std::vector<Run>& runs, const Registries& registries) {
  const std::set<std::string> first = first_looks(runs);
  std::vector<Run> order;
  for (const bool looked_at : {true, false})
    for (const std::vector<Run>& group : groups_of(runs, registries))
      for (const Run& run : group)
        if (first.contains(run.key) == looked_at) order.push_back(run);
  return order;
}

Rounds::Rounds(const std::vector<Run>& runs, Workbench& bench, const SweepOptions& options, ResultsFile& file,
               Unfinished& unfinished)
    : bench_(bench), options_(options), file_(file), unfinished_(unfinished) {
  for (const Run& run : runs) resume(runs_.emplace_back(RunProgress{run}));
}

void Rounds::resume(RunProgress& one) {
  const std::string& key = one.run.key;
  const int count = unfinished_.count(key);
  if (count == 0) return unfinished_.drop(key);  // later ones than a damaged first are of another sweep
  Origin now;
  const bool known = failure_of([&] { now = origin_now(one.run, bench_, options_.beside); }).empty();
  for (; one.done < count; ++one.done) {
    MeasuredAlternation alternation;
    const bool complete = failure_of([&] { alternation = alternation_of(unfinished_.at(key, one.done)); }).empty();
    if (!complete || (known && !same_origin(alternation.origin, now))) {
      spdlog::warn(
          "{}: {} alternations of an earlier sweep are measured again, since {}", label_of(one.run), count,
          complete ? "the program, the machine or a file that the run reads has changed" : "one of them is damaged");
      unfinished_.drop(key);
      one = {one.run};
      return;
    }
    one.measured += alternation.measured_seconds;
  }
}

void Rounds::look(const std::set<std::string>& keys, const std::function<void(const Run&)>& progress,
                  const std::function<void(const Run&, const std::string&)>& failed) {
  failed_ = failed;
  round(0, [&](const Run& run) { return keys.contains(run.key); }, progress);
}

void Rounds::measure(const std::function<void(const Run&)>& progress,
                     const std::function<void(const Run&, const std::string&)>& failed) {
  failed_ = failed;
  for (int k = 0; std::ranges::any_of(runs_, [](const RunProgress& c) { return !c.over; }); ++k) {
    round(k, [](const Run&) { return true; }, progress);
    baselines_.clear();
  }
}

void Rounds::round(int k, const std::function<bool(const Run&)>& chosen,
                   const std::function<void(const Run&)>& progress) {
  const auto together =
      std::ranges::count_if(runs_, [&](const RunProgress& c) { return !c.over && (c.done > k || c.wants_more()); });
  if (options_.share_baselines) restore_baselines(k);
  for (RunProgress& one : runs_) {
    if (one.over || one.done > k || !chosen(one.run)) continue;
    check_interrupt();
    next(one, int(together), progress);
    bench_.forget_unused();  // also after a failed run: the next ones need its memory
  }
}

void Rounds::restore_baselines(int k) {
  for (const RunProgress& c : runs_)
    if (!c.over && c.done > k) baselines_.put(c.run.document, alternation_of(unfinished_.at(c.run.key, k)).baseline);
}

void Rounds::next(RunProgress& one, int together, const std::function<void(const Run&)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  progress(one.run);
  MeasuredAlternation alternation;
  const std::string error = failure_of([&] {
    if (!one.prepared) one.prepared = std::make_shared<const PreparedRun>(prepare(one.run, bench_, options_.beside));
    alternation = measure_alternation(
        one.run, one.done, *one.prepared, bench_, options_.beside,
        [&](double part) {
          one.part = part;
          progress(one.run);
        },
        options_.share_baselines ? &baselines_ : nullptr);
  });
  one.part = 0;
  if (!error.empty()) return fail(one, error, seconds_since(start));
  alternation.together = together;
  if (!options_.sweep.empty()) alternation.sweep = options_.sweep;
  ++one.done;
  one.measured += alternation.measured_seconds;
  if (one.wants_more()) return unfinished_.add(to_json(alternation));
  std::vector<MeasuredAlternation> all;
  for (int k = 0; k + 1 < one.done; ++k) all.push_back(alternation_of(unfinished_.at(one.run.key, k)));
  all.push_back(std::move(alternation));
  finish(one, std::move(all));
}

// Its line takes the place of its alternations.
void Rounds::finish(RunProgress& one, std::vector<MeasuredAlternation> alternations) {
  const int together = std::ranges::min_element(alternations, {}, &MeasuredAlternation::together)->together;
  Result result;
  const std::string error = failure_of([&] { result = result_of(one.run, std::move(alternations)); });
  if (!error.empty()) {
    fail(one, error, 0);
  } else {
    result.interleaved = together;
    file_.append(result);
    end(one);
  }
  unfinished_.drop(one.run.key);
}

void Rounds::fail(RunProgress& one, const std::string& error, double seconds) {
  file_.append(failed_result(one.run, error, seconds, bench_, options_.beside));
  failed_(one.run, error);
  end(one);
}

void Rounds::end(RunProgress& one) {
  one.over = true;
  one.prepared.reset();  // a sweep may have many runs of many prompts
}

Work Rounds::work() const {
  Work sum;
  for (const RunProgress& c : runs_) {
    sum.finished += c.over;
    sum.done += c.over ? 1 : share_done(c.run.document, c.done + c.part, c.measured);
  }
  return sum;
}

}  // namespace foretoken
