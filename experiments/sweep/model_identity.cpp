#include "experiments/sweep/model_identity.h"

#include <string>

#include <nlohmann/json.hpp>

#include "framework/model/gguf/gguf_file.h"
#include "framework/model/model_files.h"
#include "framework/text/json_file.h"
#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// "org/name" of ".../models--org--name/snapshots/REVISION".
std::string name_in_cache(const fs::path& directory) {
  constexpr const char* kPrefix = "models--";
  std::string name = directory.parent_path().parent_path().filename().string();
  if (directory.parent_path().filename() != "snapshots" || !name.starts_with(kPrefix)) return "";
  name.erase(0, std::string(kPrefix).size());
  for (std::size_t at; (at = name.find("--")) != std::string::npos;) name.replace(at, 2, "/");
  return name;
}

std::string name_in_file(const fs::path& file) {
  try {
    return replace_broken_utf8(GgufFile::open(file)->metadata().string_or("general.name", ""));
  } catch (const Error&) {
    return "";
  }
}

std::string commit_in_config(const fs::path& directory) {
  try {
    const json config = read_json(directory / "config.json");
    const json commit = config.is_object() ? config.value("_commit_hash", json()) : json();
    return commit.is_string() ? commit.get<std::string>() : "";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

ModelIdentity model_identity(const fs::path& path) {
  std::error_code ignored;
  // As it is named, not where links lead: a file of the cache is a link to a blob.
  const fs::path absolute = (fs::absolute(path, ignored) / "").lexically_normal().parent_path();
  const std::string cached = name_in_cache(absolute);
  const bool file = is_one_file(path);
  std::string name = file ? name_in_file(path) : cached, revision = cached.empty() ? "" : absolute.filename().string();
  if (name.empty()) name = replace_broken_utf8(absolute.filename().string());
  if (revision.empty() && !file) revision = commit_in_config(path);
  return {.name = name, .revision = revision.empty() ? std::nullopt : std::optional(revision), .hash = std::nullopt};
}

}  // namespace foretoken
