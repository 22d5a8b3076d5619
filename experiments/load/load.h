// The requests of runs, sent to a server by HTTP: one level of load after another, each a line of JSON and a row of a
// table. This module must not know the command line, or what serves.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/load/http_client.h"
#include "experiments/report/json_lines.h"
#include "experiments/report/table.h"
#include "experiments/session/workbench.h"

namespace foretoken {

// A complete run, whose requests are sent: of an open loop (/workload/rate, /workload/rates) when they arrive, else as
// many at once as /engine/batch says. What it says of drafters and engines has no effect.
struct LoadLevel {
  nlohmann::json run;
  nlohmann::json axes = nlohmann::json::object();  // what tells it from others of its sweep, for the table
};

struct LoadOptions {
  HttpTarget target;
  std::string model;     // as the server names it; empty: as it likes
  std::string label;     // of the server, in lines and tables
  bool waves = false;    // HttpLoad::waves
  int warmup = 2;        // requests for each that runs at once, shortened, before a level; 0: none
  double seconds = 600;  // for each request
};

// One level: its line of results, with figures and the times of every request. A run that HTTP cannot ask for, of
// several turns or tapes of draws, is an Error, as is a level of which every request failed.
nlohmann::json measured_level(const LoadLevel& level, const LoadOptions& options, Workbench& bench,
                              const std::filesystem::path& beside,
                              const std::function<void(std::size_t, std::size_t)>& progress);

// The lines of such a file.
LineKind load_lines();
// Lines as a table: latencies in milliseconds.
Table load_table(const std::vector<nlohmann::json>& lines);

}  // namespace foretoken
