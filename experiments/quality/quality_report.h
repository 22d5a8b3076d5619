// Tables and JSON of `foretoken quality`. This module must not know how figures are measured.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/quality/predictions.h"

namespace foretoken {

// A model, and what was measured of it.
struct QualityRow {
  std::string model, dtype, kv_dtype;           // types of its weights and of its cache, and how that is thinned
  std::int64_t weight_bytes = 0, kv_bytes = 0;  // kv_bytes: of a position in the cache
  std::string reference;                        // with its types; empty: there is none
  PredictionFigures predictions;
  std::optional<OutputFigures> outputs;
};

nlohmann::json to_json(const PredictionFigures& figures);
nlohmann::json to_json(const OutputFigures& figures);

// `format`: terminal, markdown or csv. Rows, at least one, of the same model, text and reference.
std::string quality_tables(const std::vector<QualityRow>& rows, const std::string& text, const std::string& format,
                           int width);

}  // namespace foretoken
