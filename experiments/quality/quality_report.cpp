#include "experiments/quality/quality_report.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "experiments/report/summary.h"
#include "experiments/report/table.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr int kMega = 1'000'000;

// Digits after the point that show three figures of a positive number.
int three_figures(double x) {
  return x > 0 && std::isfinite(x) ? std::clamp(2 - int(std::floor(std::log10(x))), 0, 12) : 3;
}

// A group of columns, and their cells for a row.
struct Part {
  std::vector<Column> columns;
  std::vector<Cell> (*cells)(const QualityRow& row);
  bool (*shown)(const QualityRow& row);  // whether the row has such figures
};

constexpr auto kInterval = Column::Kind::interval;

bool always(const QualityRow&) { return true; }
bool compared(const QualityRow& r) { return !r.reference.empty(); }
bool wrote(const QualityRow& r) { return r.outputs.has_value(); }

Part model() {
  return {{{"model", "model", "", Column::Kind::text}},
          [](const QualityRow& r) { return std::vector{Cell::of(r.model)}; },
          always};
}

Part type() {
  return {{{"type", "type", "of the model's weights", Column::Kind::text},
           {"cache", "kv_type", "type of cached keys and values; 4+256: the first 4 and last 256 tokens alone are read",
            Column::Kind::text}},
          [](const QualityRow& r) { return std::vector{Cell::of(r.dtype), Cell::of(r.kv_dtype)}; },
          always};
}

Part perplexity() {
  return {{{"MB", "weights_mb", "10^6 bytes of weights that one forward reads"},
           {"B a token", "kv_bytes", "bytes of a token's keys and values in the cache, with their scales"},
           {"perplexity", "perplexity", "exp of the mean of -log p over predicted tokens", kInterval}},
          [](const QualityRow& r) {
            return std::vector{Cell::of(double(r.weight_bytes) / kMega, 1), Cell::of(double(r.kv_bytes), 0),
                               Cell::of(r.predictions.perplexity, 3)};
          },
          always};
}

Part excess() {
  return {{{"reference's", "reference_perplexity", "of the reference on the same tokens"},
           {"excess loss", "excess_loss", "mean of -log p less the reference's, token by token, nats", kInterval}},
          [](const QualityRow& r) {
            return std::vector{Cell::of(r.predictions.reference_perplexity.value, 3),
                               Cell::of(r.predictions.excess, 5)};
          },
          compared};
}

Part divergence() {
  return {{{"KL", "kl", "mean of KL(reference || model) over predicted tokens, nats", kInterval},
           {"median", "kl_median", "of the tokens' KL"},
           {"99 %", "kl_99", "99th percentile of the tokens' KL"},
           {"greatest", "kl_greatest", "greatest KL of a token"}},
          [](const QualityRow& r) {
            const PredictionFigures& f = r.predictions;
            const auto figure = [](double x) { return Cell::of(x, three_figures(x)); };
            return std::vector{Cell::of(f.divergence, three_figures(f.divergence.value)), figure(f.divergence_median),
                               figure(f.divergence_99), figure(f.divergence_most)};
          },
          compared};
}

Part agreement() {
  return {
      {{"same top token", "same_top", "share of tokens for which both have the same most probable token", kInterval},
       {"overlap", "overlap", "mean of the sum of min(p, r): acceptance at temperature 1 if one drafts for the other",
        kInterval}},
      [](const QualityRow& r) {
        return std::vector{Cell::of(r.predictions.agreement, 4), Cell::of(r.predictions.overlap, 4)};
      },
      compared};
}

Part outputs() {
  return {{{"prompts", "prompts", ""},
           {"equal", "equal_outputs", "share of prompts whose whole outputs are equal", kInterval},
           {"common prefix", "common_prefix", "tokens before the first difference, mean over prompts", kInterval},
           {"its share", "common_prefix_share", "the same as a share of the reference's tokens", kInterval}},
          [](const QualityRow& r) {
            const OutputFigures& f = *r.outputs;
            return std::vector{Cell::of(f.prompts, 0), Cell::of(f.equal, 3), Cell::of(f.prefix, 1),
                               Cell::of(f.prefix_share, 3)};
          },
          wrote};
}

// The columns of those parts of which the rows have figures.
Table table_of(const std::string& title, std::vector<Part> parts, const std::vector<QualityRow>& rows) {
  std::erase_if(parts, [&](const Part& p) { return !p.shown(rows.front()); });
  Table t{title, "", {}, {}};
  for (const Part& p : parts) t.columns.insert(t.columns.end(), p.columns.begin(), p.columns.end());
  for (const QualityRow& r : rows) {
    Row row;
    for (const Part& p : parts) std::ranges::move(p.cells(r), std::back_inserter(row.cells));
    t.rows.push_back(std::move(row));
  }
  return t;
}

std::string note_of(const std::vector<QualityRow>& rows, const std::string& text) {
  const PredictionFigures& f = rows.front().predictions;
  const std::string reference = rows.front().reference.empty() ? "" : " Reference: " + rows.front().reference + ".";
  return rows.front().model + ": " + std::to_string(f.tokens) + " predicted tokens of " + text +
         "; 95 % intervals over " + std::to_string(f.units) + " " + f.unit + "s." + reference;
}

}  // namespace

json to_json(const PredictionFigures& f) {
  return {{"tokens", f.tokens},
          {"unit", f.unit},
          {"units", f.units},
          {"loss", to_json(f.loss)},
          {"perplexity", to_json(f.perplexity)},
          {"reference_loss", to_json(f.reference_loss)},
          {"reference_perplexity", to_json(f.reference_perplexity)},
          {"excess_loss", to_json(f.excess)},
          {"kl", to_json(f.divergence)},
          {"kl_median", finite(f.divergence_median)},
          {"kl_99", finite(f.divergence_99)},
          {"kl_greatest", finite(f.divergence_most)},
          {"same_top", to_json(f.agreement)},
          {"overlap", to_json(f.overlap)}};
}

json to_json(const OutputFigures& f) {
  return {{"prompts", f.prompts},
          {"equal", to_json(f.equal)},
          {"common_prefix", to_json(f.prefix)},
          {"common_prefix_share", to_json(f.prefix_share)}};
}

std::string quality_tables(const std::vector<QualityRow>& rows, const std::string& text, const std::string& format,
                           int width) {
  if (format == "csv")
    return table_of("", {model(), type(), perplexity(), excess(), divergence(), agreement(), outputs()}, rows).csv();
  const bool markdown = format == "markdown";
  std::vector<Table> tables{table_of("Perplexity", {type(), perplexity(), excess()}, rows)};
  if (compared(rows.front())) {
    tables.push_back(table_of("KL divergence from the reference's predictions", {type(), divergence()}, rows));
    tables.push_back(table_of("Agreement with the reference's predictions", {type(), agreement()}, rows));
  }
  if (wrote(rows.front()))
    tables.push_back(table_of("Greedy outputs beside the reference's", {type(), outputs()}, rows));
  tables.front().note = note_of(rows, text);
  std::string found;
  for (const Table& t : tables) found += (markdown ? t.markdown() : t.terminal(width)) + "\n";
  return found + legend(tables, width, markdown);
}

}  // namespace foretoken
