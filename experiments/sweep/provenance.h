// With what a result was measured, beside its run: the commit, the machine, the contents of the files that the run
// names. The key of a run sees none of it, so a file of results says where it is no longer what would be measured now.
// This module knows files, not how a run is measured.
#pragma once
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/results.h"
#include "experiments/sweep/sweep.h"

namespace foretoken {

// {path as the run names it: fingerprint} of all that a complete run reads: its prompts, its models, directories that
// give a shape, and files that a drafter, a policy or a verifier takes as an option. What is absent is left out.
nlohmann::json sources_of(const nlohmann::json& run, const Registries& registries, const std::filesystem::path& beside);

// {path as the run names it: {"name", "revision", "hash"}} of its models (model_identity()), with their fingerprints in
// `sources`.
nlohmann::json named_models(const nlohmann::json& run, const Registries& registries,
                            const std::filesystem::path& beside, const nlohmann::json& sources);

// A hash of every byte of a file; of a model directory those of all its files that are read: configuration, generation
// configuration, tokenizer, chat template, index, weights. Empty where nothing is. A file costs one reading, by all
// cores, once in a process as long as it is the same (inode, size, times of modification and of change).
std::string fingerprint(const std::filesystem::path& path);

// Whether two measurements, each with its "commit", "compiler", "machine" and "sources", may be alternations of one
// run. Clocks change while they are made.
bool same_origin(const nlohmann::json& a, const nlohmann::json& b);

struct Origins {
  std::set<std::string> changed;       // keys of results that were measured with other contents
  std::vector<std::string> sentences;  // one for each way in which results were made with something else than is here
};
// Of the results that `file` holds of these runs. `commit`: of this program; `machine_here`: what machine_of() says of
// the device of a run's "engine". Where runs are still to be measured, and a result is of another kind of device than
// its run would take now, is an Error: "auto" would put both into one file.
Origins origins_of(const std::vector<Run>& runs, const ResultsFile& file, const std::filesystem::path& beside,
                   const std::string& commit,
                   const std::function<nlohmann::json(const nlohmann::json& engine)>& machine_here);

}  // namespace foretoken
