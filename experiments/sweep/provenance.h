// With what a result was measured, beside its run: the commit, the machine, what lay behind the paths. The key of a run
// sees none of it, so a file of results says where it is no longer what would be measured now. Knows files, not how
// runs go.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/results.h"
#include "experiments/sweep/sweep.h"

namespace foretoken {

// {path as the run names it: fingerprint} of a complete run's prompts and models. What is not there is left out.
nlohmann::json sources_of(const nlohmann::json& run, const Registries& registries, const std::filesystem::path& beside);

// 16 hexadecimal digits of a file's contents; of a model directory those of its configuration, its tokenizer, and the
// sizes and ends of its weights. Empty where nothing is.
std::string fingerprint(const std::filesystem::path& path);

// One sentence for each way in which results that `file` keeps of these runs were made with something else than is here
// now; `commit`: of this program.
std::vector<std::string> other_origins(const std::vector<Run>& runs, const ResultsFile& file,
                                       const std::filesystem::path& beside, const std::string& commit);

}  // namespace foretoken
