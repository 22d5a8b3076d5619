#include "experiments/sweep/shards.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>

#include "experiments/sweep/baselines.h"
#include "experiments/sweep/jobs.h"
#include "experiments/sweep/learning.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

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
  const double requests = std::max((limit > 0 ? limit : kAllPrompts) * repeats, double(kRequestsAPlace) * batch) *
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

}  // namespace foretoken
