// A sweep is a base run and axes over any of its fields: {"base": run, "axes": {JSON pointer: [values]}}. Axes that are
// walked together stand in one object of a list: "axes": [{"/policy/length": [1, 4], "/engine/batch": [64, 1]}, {...}].
// "names" has values by names, which base and axes write as "@NAME"; "stand_ins" are settings with which the document
// runs where its models are not there; "published" are figures of a paper (report/published.h). A document without
// "base" is a single run.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/results.h"
#include "framework/components/registry.h"

namespace foretoken {

struct Run {
  nlohmann::json document;  // complete
  nlohmann::json axes;      // {pointer: value} of this run
  std::string key;          // key_of(document), by which its result is found
};

// Every combination of the axes, the last axis fastest, in the order of the document; equal runs once. One whose
// drafter or policy learns and that names no "/workload/start" is two runs, cold and warm. `settings` are
// "POINTER=VALUE" overrides of the base. A pointer that is not a key of a run, an empty axis, an axis or setting
// without effect, more than `most_runs` combinations, two runs with one trace file, or a bad document is an Error.
std::vector<Run> expand(const nlohmann::ordered_json& document, const std::vector<std::string>& settings,
                        const Registries& registries, const std::string& where, std::size_t most_runs = 20'000);

// What the names of a document stand for, after the settings that change them ("/names/NAME=VALUE").
nlohmann::json named_values(const nlohmann::ordered_json& document, const std::vector<std::string>& settings,
                            const std::string& where);
// The settings in the document with which it runs without its models; empty where it has none.
std::vector<std::string> stand_ins(const nlohmann::ordered_json& document, const std::string& where);

// Where a run with the key "trace" writes it: the given name, with the run's key for every "{key}" in it.
std::string trace_file(const Run& run);

// What tells a sweep from others that may share its file of results: its document's place and the settings.
std::string sweep_name(const std::filesystem::path& document, const std::vector<std::string>& settings);

// Sets "POINTER=VALUE" in a document; VALUE is JSON, else taken as a string.
void put_setting(nlohmann::json& document, const std::string& setting, const std::string& where);

}  // namespace foretoken
