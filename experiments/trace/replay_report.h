// Tables and JSON of `foretoken replay`. This module must not know how figures are computed.
#pragma once
#include <string>
#include <vector>

#include "experiments/trace/orders.h"
#include "experiments/trace/replay.h"

namespace foretoken {

struct ReplayReport {
  std::string file;
  const Trace* trace = nullptr;
  std::vector<Replayed> rows;
  Orders orders;
  double cost_error = 0;  // CostTable::error()
  std::size_t cost_steps = 0;
};

// `format`: terminal, markdown, csv or json.
std::string replay_report(const ReplayReport& report, const std::string& format, int width);

}  // namespace foretoken
