#include "experiments/quality/quality_report.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "experiments/report/summary.h"
#include "experiments/report/table.h"

namespace foretoken {
namespace {

using nlohmann::json;

// Digits after the point that show three figures of a positive number.
int three_figures(double x) {
  return x > 0 && std::isfinite(x) ? std::clamp(2 - int(std::floor(std::log10(x))), 0, 12) : 3;
}

constexpr auto kInterval = Column::Kind::interval, kText = Column::Kind::text;

// Columns that stand together, in the order of a CSV file.
enum class Part : std::uint8_t { model, type, perplexity, excess, divergence, agreement, outputs };

const std::pair<Part, Column> kColumns[] = {
    {Part::model, {"model", "model", "", kText}},
    {Part::type, {"type", "type", "of the model's weights", kText}},
    {Part::type,
     {"cache", "kv_type", "type of cached keys and values; 4+256: the first 4 and last 256 tokens alone are read",
      kText}},
    {Part::perplexity, {"MB", "weights_mb", "10^6 bytes of weights that one forward reads"}},
    {Part::perplexity, {"B a token", "kv_bytes", "bytes of a token's keys and values in the cache, with their scales"}},
    {Part::perplexity, {"perplexity", "perplexity", "exp of the mean of -log p over predicted tokens", kInterval}},
    {Part::excess, {"reference's", "reference_perplexity", "of the reference on the same tokens"}},
    {Part::excess,
     {"excess loss", "excess_loss", "mean of -log p less the reference's, token by token, nats", kInterval}},
    {Part::divergence, {"KL", "kl", "mean of KL(reference || model) over predicted tokens, nats", kInterval}},
    {Part::divergence, {"median", "kl_median", "of the tokens' KL"}},
    {Part::divergence, {"99 %", "kl_99", "99th percentile of the tokens' KL"}},
    {Part::divergence, {"greatest", "kl_greatest", "greatest KL of a token"}},
    {Part::agreement,
     {"same top token", "same_top", "share of tokens for which both have the same most probable token", kInterval}},
    {Part::agreement,
     {"overlap", "overlap", "mean of the sum of min(p, r): acceptance at temperature 1 if one drafts for the other",
      kInterval}},
    {Part::outputs, {"prompts", "prompts", ""}},
    {Part::outputs, {"equal", "equal_outputs", "share of prompts whose whole outputs are equal", kInterval}},
    {Part::outputs,
     {"common prefix", "common_prefix", "tokens before the first difference, mean over prompts", kInterval}},
    {Part::outputs, {"its share", "common_prefix_share", "the same as a share of the reference's tokens", kInterval}}};

// One for each of kColumns.
std::vector<Cell> cells_of(const QualityRow& r) {
  const PredictionFigures& f = r.predictions;
  const OutputFigures o = r.outputs.value_or(OutputFigures());
  const auto kl = [](auto x, double value) { return Cell::of(x, three_figures(value)); };
  return {Cell::of(r.model),
          Cell::of(r.dtype),
          Cell::of(r.kv_dtype),
          Cell::of(double(r.weight_bytes) / 1e6, 1),
          Cell::of(double(r.kv_bytes), 0),
          Cell::of(f.perplexity, 3),
          Cell::of(f.reference_perplexity.value, 3),
          Cell::of(f.excess, 5),
          kl(f.divergence, f.divergence.value),
          kl(f.divergence_median, f.divergence_median),
          kl(f.divergence_99, f.divergence_99),
          kl(f.divergence_most, f.divergence_most),
          Cell::of(f.agreement, 4),
          Cell::of(f.overlap, 4),
          Cell::of(o.prompts, 0),
          Cell::of(o.equal, 3),
          Cell::of(o.prefix, 1),
          Cell::of(o.prefix_share, 3)};
}

// Whether the row has the figures of these columns.
bool has(const QualityRow& r, Part part) {
  if (part == Part::outputs) return r.outputs.has_value();
  return part < Part::excess || !r.reference.empty();
}

// The columns of those parts of which the rows have figures.
Table table_of(const std::string& title, const std::set<Part>& parts, const std::vector<QualityRow>& rows) {
  Table t;
  t.title = title;
  t.rows.resize(rows.size());
  std::vector<bool> chosen;
  for (const auto& [part, column] : kColumns) {
    chosen.push_back(parts.contains(part) && has(rows.front(), part));
    if (chosen.back()) t.columns.push_back(column);
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::vector<Cell> cells = cells_of(rows[r]);
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (chosen[i]) t.rows[r].cells.push_back(cells[i]);
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
    return table_of("",
                    {Part::model, Part::type, Part::perplexity, Part::excess, Part::divergence, Part::agreement,
                     Part::outputs},
                    rows)
        .csv();
  const bool markdown = format == "markdown";
  std::vector<Table> tables{table_of("Perplexity", {Part::type, Part::perplexity, Part::excess}, rows)};
  for (const auto& [title, part] : {std::pair("KL divergence from the reference's predictions", Part::divergence),
                                    std::pair("Agreement with the reference's predictions", Part::agreement),
                                    std::pair("Greedy outputs beside the reference's", Part::outputs)})
    if (has(rows.front(), part)) tables.push_back(table_of(title, {Part::type, part}, rows));
  tables.front().note = note_of(rows, text);
  std::string found;
  for (const Table& t : tables) found += (markdown ? t.markdown() : t.terminal(width)) + "\n";
  return found + legend(tables, width, markdown);
}

}  // namespace foretoken
