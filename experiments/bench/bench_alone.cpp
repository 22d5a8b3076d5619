#include "experiments/bench/bench_alone.h"

#include <cstdio>

#include "experiments/bench/bench_attention.h"
#include "experiments/bench/bench_compaction.h"

namespace foretoken {
namespace {

using Json = nlohmann::json;

// The row of the table: microseconds of `what`, bytes, and the share of the copy bandwidth that they make.
std::string row_of(const Scenario& s, double seconds, const char* what, double bytes, double share) {
  char text[256];
  std::snprintf(text, sizeof text, "%-44s %8.2f us%s, %.1f MB of keys and values: %.3f of the copy bandwidth",
                s.name.c_str(), seconds * 1e6, what, bytes / 1e6, share);
  return text;
}

}  // namespace

AloneResult measure_attention(const Scenario& s, Workbench& bench, const ModelConfig& model, double bytes_a_second) {
  const AttentionLoad load{s.batch, s.context, s.guesses + 1, bench.target_info(s.run, "").kv.layers.front()};
  const double seconds = attention_seconds(bench.backend(s.run.at("engine")), model, load, s.steps),
               bytes = load.bytes(), share = share_of(bytes, seconds, bytes_a_second);
  AloneResult r{1e3 * seconds,
                {{"rows", load.rows}, {"layer_us", seconds * 1e6}, {"kv_bytes", bytes}, {"share", share}},
                row_of(s, seconds, " a layer", bytes, share)};
  if (s.share > 0) {
    char text[64];
    std::snprintf(text, sizeof text, " (at least %g: %s)", s.share, share >= s.share ? "met" : "MISSED");
    r.text += text;
    r.line["bar_share"] = s.share, r.line["met"] = share >= s.share;
  }
  return r;
}

AloneResult measure_compaction(const Scenario& s, Workbench& bench, double bytes_a_second) {
  const CompactionLoad load{s.batch, s.context, s.moves, bench.target_info(s.run, "").kv};
  const double seconds = compaction_seconds(bench.backend(s.run.at("engine")), load, s.steps), bytes = load.bytes(),
               share = share_of(bytes, seconds, bytes_a_second);
  return {1e3 * seconds,
          {{"rows", load.rows}, {"compaction_us", seconds * 1e6}, {"kv_bytes", bytes}, {"share", share}},
          row_of(s, seconds, "", bytes, share)};
}

}  // namespace foretoken
