#include "experiments/sweep/provenance.h"

#include <algorithm>
#include <fstream>
#include <map>

#include <xxhash.h>

#include "experiments/report/machine.h"
#include "experiments/sweep/workload.h"
#include "framework/model/model_choice.h"

namespace foretoken {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::uintmax_t kPiece = 1 << 20;  // bytes of either end of weights

std::string bytes_at(std::ifstream& in, std::uintmax_t from, std::uintmax_t count) {
  std::string bytes(count, '\0');
  in.seekg(std::streamoff(from));
  in.read(bytes.data(), std::streamsize(count));
  bytes.resize(std::size_t(std::max<std::streamsize>(in.gcount(), 0)));
  return bytes;
}

// What stands for a file's contents: all of it, or its size and ends.
std::string contents(const fs::path& file, bool whole) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  std::ifstream in(file, std::ios::binary);
  if (error || !in) return "";
  const std::uintmax_t piece = whole ? size : std::min(size, kPiece);
  return file.filename().string() + ":" + std::to_string(size) + ":" + bytes_at(in, 0, piece) +
         (whole ? "" : bytes_at(in, size - piece, piece));
}

std::string hashed(const std::string& bytes) {
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return hex;
}

void add_model(const json& owner, std::vector<std::string>& paths) {
  if (!owner.contains("model") || owner["model"].is_null()) return;
  const ModelChoice choice = ModelChoice::read(owner["model"], owner.value("inflate", json()));
  paths.push_back(choice.directory.empty() ? choice.tokenizer_directory() : choice.directory);
}

std::string counted(long n) { return std::to_string(n) + (n == 1 ? " result" : " results"); }

}  // namespace

std::string fingerprint(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return "";
  if (!fs::is_directory(path, error)) return hashed(contents(path, true));
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (const auto extension = entry.path().extension(); extension == ".safetensors" || extension == ".json")
      files.push_back(entry.path());
  std::ranges::sort(files);
  std::string all;
  for (const fs::path& file : files) all += hashed(contents(file, file.extension() == ".json"));
  return hashed(all);
}

json sources_of(const json& run, const Registries& registries, const fs::path& beside) {
  std::vector<std::string> paths{run["workload"]["prompts"]};
  add_model(run["target"], paths);
  for (const Option& o : registries.drafters.find(run["drafter"]).options)
    if (o.type == "model") add_model(run["drafter"], paths);
  json found = json::object();
  for (const std::string& path : paths)
    if (const std::string print = fingerprint(locate(path, beside)); !print.empty()) found[path] = print;
  return found;
}

std::vector<std::string> other_origins(const std::vector<Run>& runs, const ResultsFile& file, const fs::path& beside,
                                       const std::string& commit) {
  const json here = host_of();
  std::map<std::string, long> differing;  // how many results, by what is different
  std::map<std::string, std::string> prints;
  for (const Run& run : runs) {
    if (!file.has(run.key)) continue;
    const json& origin = file.origin_of(run.key);
    if (origin["commit"] != commit) ++differing["by another commit than " + commit];
    const json& machine = origin["machine"];
    if (machine.is_object() &&
        (machine.value("cpu", json()) != here["cpu"] || machine.value("cores", json()) != here["cores"]))
      ++differing["on another machine (" + machine.value("cpu", "unknown") + ", " +
                  machine.value("cores", json()).dump() + " cores)"];
    for (const auto& [path, print] : origin["sources"].items()) {
      if (!prints.contains(path)) prints[path] = fingerprint(locate(path, beside));
      if (print != prints[path]) ++differing["with other contents of " + path];
    }
  }
  std::vector<std::string> sentences;
  for (const auto& [what, count] : differing)
    sentences.push_back(counted(count) + " in " + file.path().string() + (count == 1 ? " was" : " were") +
                        " measured " + what + (count == 1 ? " and is" : " and are") +
                        " kept; to measure again name another file with --results");
  return sentences;
}

}  // namespace foretoken
