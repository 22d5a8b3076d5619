// Figures that a paper published, as a sweep's document holds them beside its runs ("published"), and the same figures
// of results: each by the paper's definition, with what differs from the paper's setting. This module must not know how
// a run is measured, nor where documents lie.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/result.h"
#include "experiments/report/statistics.h"
#include "experiments/report/summary.h"

namespace foretoken {

// What the paper says of its measurement, in words.
struct PublishedSettings {
  FORETOKEN_FIELDS((std::optional<std::string>, hardware, "machine"), (std::optional<std::string>, engine, "program"),
                   (std::optional<std::string>, precision, "type of the weights"),
                   (std::optional<std::string>, prompts, "prompts, and tokens generated"),
                   (std::optional<std::string>, baseline, "what a speedup is over"),
                   (std::optional<std::string>, models,
                    "models that the figures are of, where no run of the document has them"),
                   (std::optional<std::string>, note, "whatever else matters"))
};

struct PublishedCell {
  FORETOKEN_FIELDS((std::string, row, "row of the paper's table"),
                   (std::optional<std::string>, column, "column of the paper's table"),
                   (nlohmann::json, where,
                    "{JSON pointer: value} that one run of the document alone has; \"@NAME\" is one of its names"),
                   (std::optional<std::vector<std::string>>, categories, "of the prompts; absent: of all"),
                   (std::optional<int>, position, "in the draft, from 1, of a metric by position"),
                   (double, value, "the figure"))
};

struct PublishedTable {
  FORETOKEN_FIELDS((std::string, table, "which one of the paper"),
                   (std::string, metric, "how it is computed here: a name of published_metrics()"),
                   (std::string, called, "what the paper calls it"),
                   (std::string, definition, "as the paper has it, in words"),
                   (std::optional<std::string>, source, "where its figures were read, if not where the others were"),
                   (std::optional<PublishedSettings>, settings, "in place of the document's"),
                   (std::vector<PublishedCell>, cells, "its figures"))
};

struct Published {
  FORETOKEN_FIELDS((std::string, paper, "as arXiv 2211.17192"), (std::string, title, "its title"),
                   (std::string, source, "where the figures were read"),
                   (PublishedSettings, settings, "of all tables, where they do not have others"),
                   (std::vector<PublishedTable>, tables, "the figures"),
                   (std::optional<std::vector<std::string>>, left_out,
                    "what the paper has and the document has not, with the reason"))
};

// Of a sweep's document; none where it has none. An unknown or missing field, a wrong type or an unknown metric is an
// Error that names it.
std::optional<Published> published_of(const nlohmann::ordered_json& document, const std::string& where);

// A figure of a paper, computed from a result.
struct PublishedMetric {
  const char* name;
  const char* computed;  // how, in words
  const char* ours;      // the figure of this project that is nearest, by its name in CSV
  bool timed;            // depends on the machine
};
const std::vector<PublishedMetric>& published_metrics();

struct MeasuredFigure {
  Interval here = Interval::unknown(), ours = Interval::unknown();
  std::string unknown;  // why the first is
};
// By the metric's definition, of the cell's categories and position. A metric that results have no sums for, as one by
// position of some categories alone, is unknown with the reason.
// `whole`: the summary of the result.
MeasuredFigure measured_figure(const PublishedTable& table, const PublishedCell& cell, const Result& result,
                               const Summary& whole);

// A sweep's document, and what its names stand for in each way to run it: as it is, with stand-ins, with settings.
struct PublishedDocument {
  std::string name;  // its file
  Published published;
  std::vector<nlohmann::json> runs;   // complete
  std::vector<nlohmann::json> names;  // {name: value}, one for each way; the first as it is
};

struct PublishedOptions {
  std::string format = "terminal";  // terminal, markdown, latex, csv, json
  std::string results = "results";  // the file
  int width = 118;
};

// For each table of the paper its figures, those of the results beside them, their ratios, and what differs. A result
// belongs to a cell whose "where" it meets; a name is met by what it stands for in any way. Cells whose
// "where" no run of the document meets, or several, and results none of which belongs to any cell are an Error.
std::string compare_published(const std::vector<Result>& results, const PublishedDocument& document,
                              const PublishedOptions& options);

}  // namespace foretoken
