// Results matched with the figures of a paper. This module must not know how both are shown.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "experiments/report/published.h"

namespace foretoken {

// A figure of the paper and, where a result belongs to it, the same of the result.
struct Beside {
  const PublishedCell* cell;
  const Result* result = nullptr;
  MeasuredFigure figure = {};
  std::vector<std::string> differs = {};  // the result's run from the document's: "/engine/batch 4 for 1"
  bool stand_ins = false;                 // of the document's, or inflated
  bool other_path = false;  // of paths that the document does not name; whether they are the paper's is not known
  bool others = false;      // no run of the document has the paper's models

  double ratio() const { return divide(figure.here.value, cell->value); }
};

struct TableBeside {
  const PublishedTable* table;
  std::vector<Beside> rows;
};

// The models that the figures are of, where no run of the document has them.
std::optional<std::string> models_said(const PublishedTable& table, const Published& published);

// The cells of all tables with the results that belong to them; errors as of compare_published().
// `summaries`: of the results.
std::vector<TableBeside> beside_results(const std::vector<const Result*>& results,
                                        const std::vector<Summary>& summaries, const PublishedDocument& document);

}  // namespace foretoken
