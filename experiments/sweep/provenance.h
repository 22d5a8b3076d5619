// With what a result was measured, beside its run: the commit, the machine, the contents of the files that the run
// names. The key of a run sees none of it, so a file of results says where it is no longer what would be measured now.
// This module knows files, not how a run is measured.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/results.h"
#include "experiments/sweep/sweep.h"

namespace foretoken {

// The fingerprint, by the path as the run names it, of all that a complete run reads: its prompts, its models,
// directories that give a shape, and files that a drafter, a policy or a verifier takes as an option. What is absent is
// left out.
std::map<std::string, std::string> sources_of(const nlohmann::json& run, const Registries& registries,
                                              const std::filesystem::path& beside);

// Name and revision of a model's directory or GGUF file. The name: "org/name" where the directory is a snapshot in
// the cache of Hugging Face, "general.name" of a GGUF file, else that of the directory or file. The revision: that of
// the snapshot, or "_commit_hash" of config.json; absent where neither is there. A file that cannot be read as what it
// should be has its name alone.
ModelIdentity model_identity(const std::filesystem::path& path);

// The identities of its models (model_identity()), by the path as the run names it, with their hashes in `sources`.
std::map<std::string, ModelIdentity> named_models(const nlohmann::json& run, const Registries& registries,
                                                  const std::filesystem::path& beside,
                                                  const std::map<std::string, std::string>& sources);

// A hash of every byte of a file; of a model directory those of all its files that are read: configuration, generation
// configuration, tokenizer, chat template, index, weights. Empty where nothing is. A file costs one reading, by all
// cores, once in a process as long as it is the same (inode, size, times of modification and of change).
std::string fingerprint(const std::filesystem::path& path);

// Whether two measurements may be alternations of one run. Clocks change while they are made.
bool same_origin(const Origin& a, const Origin& b);

struct Origins {
  std::set<std::string> changed;       // keys of results that were measured with other contents
  std::vector<std::string> sentences;  // one for each way in which results were made with something else than is here
};
// Of results of these runs: `measured` has the origin of each by its key, `file` holds them. `commit`: of this program;
// `machine_here`: what machine_of() says of the device of a run's "engine". Where runs are still to be measured, and a
// result is of another kind of device than its run would take now, is an Error: "auto" would put both into one file.
Origins origins_of(const std::vector<Run>& runs, const std::map<std::string, Origin>& measured,
                   const std::filesystem::path& file, const std::filesystem::path& beside, const std::string& commit,
                   const std::function<MachineInfo(const nlohmann::json& engine)>& machine_here);

}  // namespace foretoken
