#include "experiments/sweep/rounds.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include <spdlog/spdlog.h>

#include "experiments/sweep/clock.h"
#include "experiments/sweep/interrupt.h"
#include "experiments/sweep/provenance.h"
#include "framework/components/registry.h"

namespace foretoken {

using nlohmann::json;

namespace {

// What a component of a run loads, by its options.
template <class T> std::string loads(const json& component, const Registry<T>& registry) {
  json found = json::array();
  const ComponentFiles files = registry.files(component);
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
    groups[place->second].push_back({loads(run.document.at("drafter"), registries.drafters) +
                                         loads(run.document.at("policy"), registries.policies) +
                                         loads(run.document.at("verifier"), registries.verifiers),
                                     &run});
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
      if (const std::pair<long, long> now = score(i); now > most) best = i, most = now;
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
  for (const Run& run : runs) resume(courses_.emplace_back(Course{run}));
}

void Rounds::resume(Course& course) {
  const std::string& key = course.run.key;
  const int count = unfinished_.count(key);
  if (count == 0) return unfinished_.drop(key);  // later ones than a damaged first are of another sweep
  Origin now;
  const bool known = failure_of([&] { now = origin_now(course.run, bench_, options_.beside); }).empty();
  for (; course.done < count; ++course.done) {
    MeasuredAlternation alternation;
    const bool complete = failure_of([&] { alternation = alternation_of(unfinished_.at(key, course.done)); }).empty();
    if (!complete || (known && !same_origin(alternation.origin, now))) {
      spdlog::warn(
          "{}: {} alternations of an earlier sweep are measured again, since {}", label_of(course.run), count,
          complete ? "the program, the machine or a file that the run reads has changed" : "one of them is damaged");
      unfinished_.drop(key);
      course = {course.run};
      return;
    }
    course.measured += alternation.measured_seconds;
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
  for (int k = 0; std::ranges::any_of(courses_, [](const Course& c) { return !c.over; }); ++k) {
    round(k, [](const Run&) { return true; }, progress);
    baselines_.clear();
  }
}

void Rounds::round(int k, const std::function<bool(const Run&)>& chosen,
                   const std::function<void(const Run&)>& progress) {
  const auto together =
      std::ranges::count_if(courses_, [&](const Course& c) { return !c.over && (c.done > k || c.wants_more()); });
  if (options_.share_baselines) restore_baselines(k);
  for (Course& course : courses_) {
    if (course.over || course.done > k || !chosen(course.run)) continue;
    check_interrupt();
    next(course, int(together), progress);
    bench_.forget_unused();  // also after a failed run: the next ones need its memory
  }
}

void Rounds::restore_baselines(int k) {
  for (const Course& c : courses_)
    if (!c.over && c.done > k) baselines_.put(c.run.document, alternation_of(unfinished_.at(c.run.key, k)).baseline);
}

void Rounds::next(Course& course, int together, const std::function<void(const Run&)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  progress(course.run);
  MeasuredAlternation alternation;
  const std::string error = failure_of([&] {
    if (!course.prepared)
      course.prepared = std::make_shared<const Prepared>(prepare(course.run, bench_, options_.beside));
    alternation = measure_alternation(
        course.run, course.done, *course.prepared, bench_, options_.beside,
        [&](double part) {
          course.part = part;
          progress(course.run);
        },
        options_.share_baselines ? &baselines_ : nullptr);
  });
  course.part = 0;
  if (!error.empty()) return fail(course, error, seconds_since(start));
  alternation.together = together;
  if (!options_.sweep.empty()) alternation.sweep = options_.sweep;
  ++course.done;
  course.measured += alternation.measured_seconds;
  if (course.wants_more()) return unfinished_.add(to_json(alternation));
  std::vector<MeasuredAlternation> all;
  for (int k = 0; k + 1 < course.done; ++k) all.push_back(alternation_of(unfinished_.at(course.run.key, k)));
  all.push_back(std::move(alternation));
  finish(course, std::move(all));
}

// Its line takes the place of its alternations.
void Rounds::finish(Course& course, std::vector<MeasuredAlternation> alternations) {
  const int together = std::ranges::min_element(alternations, {}, &MeasuredAlternation::together)->together;
  Result result;
  const std::string error = failure_of([&] { result = result_of(course.run, std::move(alternations)); });
  if (!error.empty()) {
    fail(course, error, 0);
  } else {
    result.interleaved = together;
    file_.append(result);
    end(course);
  }
  unfinished_.drop(course.run.key);
}

void Rounds::fail(Course& course, const std::string& error, double seconds) {
  file_.append(failed_result(course.run, error, seconds, bench_, options_.beside));
  failed_(course.run, error);
  end(course);
}

void Rounds::end(Course& course) {
  course.over = true;
  course.prepared.reset();  // a sweep may have many runs of many prompts
}

Work Rounds::work() const {
  Work sum;
  for (const Course& c : courses_) {
    sum.finished += c.over;
    sum.done += c.over ? 1 : share_done(c.run.document, c.done + c.part, c.measured);
  }
  return sum;
}

}  // namespace foretoken
