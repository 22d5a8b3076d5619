#include "framework/model/checkpoint.h"

#include <set>

#include "framework/model/safetensors.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

using Tensors = std::map<std::string, Tensor>;

// An index and its shards must name the same tensors, each in one shard. Otherwise they belong to different
// checkpoints, or one of two matrices would be chosen silently.
void expect_same_tensors(const std::map<std::string, Tensors>& shards, const json& map, const std::string& index) {
  for (const auto& [file, tensors] : shards)
    for (const auto& [name, tensor] : tensors) {
      const auto named = map.find(name);
      if (named == map.end())
        throw Error(index + " does not name tensor '" + name + "', which " + file + " holds; download both again");
      if (*named != file)
        throw Error("tensor '" + name + "' is in " + named->get<std::string>() + " and in " + file + ", and " + index +
                    " names the first; remove the second, or download all of them again");
    }
}

Tensors open_shards(const fs::path& directory) {
  const fs::path index = directory / kIndex;
  const json j = read_json(index);
  const Fields map = Fields(j, index.string()).object("weight_map");
  if (map.all().empty()) throw Error(index.string() + ": 'weight_map' names no tensor; download the checkpoint again");
  const bool single = has_file(directory / kSingle);
  std::map<std::string, Tensors> shards;
  Tensors entries;
  for (const auto& [name, value] : map.all().items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : "";
    if (file.empty() || fs::path(file).filename() != file || file == "." || file == "..")
      map.refuse(name.c_str(), "must be the name of a file beside the index");
    if (single && file != kSingle)
      throw Error(directory.string() + " holds " + kSingle + " and " + kIndex + ", which names " + file +
                  "; remove the one or the other, so that it is clear which weights are meant");
    auto shard = shards.find(file);
    if (shard == shards.end()) {
      if (!has_file(directory / file))
        throw Error("the shard " + (directory / file).string() + " is missing, which " + kIndex +
                    " names for tensor '" + name + "'; download it");
      shard = shards.emplace(file, map_safetensors(directory / file)).first;
    }
    const auto tensor = shard->second.find(name);
    if (tensor == shard->second.end())
      throw Error(index.string() + " says that tensor '" + name + "' is in " + file +
                  ", but that file does not hold it; download both again");
    entries.emplace(name, tensor->second);
  }
  expect_same_tensors(shards, map.all(), index.string());
  return entries;
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& directory) {
  expect_model_directory(directory);
  Checkpoint c;
  c.where_ = directory.string();
  if (has_file(directory / kIndex)) {
    c.entries_ = open_shards(directory);
    return c;
  }
  if (has_file(directory / kSingle)) return open_file(directory / kSingle);
  for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth", "tf_model.h5"})
    if (has_file(directory / other))
      throw Error(c.where_ + " holds " + other + " but no " + kSingle +
                  "; convert it with experiments/models/convert_checkpoint.py");
  throw Error(c.where_ + " holds neither " + kSingle + " nor " + kIndex + "; download the checkpoint");
}

std::vector<fs::path> Checkpoint::files(const fs::path& directory) {
  if (has_file(directory / kSingle)) return {directory / kSingle};
  if (!has_file(directory / kIndex)) return {};
  const json index = read_json(directory / kIndex);
  const Fields map = Fields(index, (directory / kIndex).string()).object("weight_map");
  std::set<fs::path> files;
  for (const json& name : map.all())
    if (name.is_string() && has_file(directory / name.get<std::string>()))
      files.insert(directory / name.get<std::string>());
  return {files.begin(), files.end()};
}

Checkpoint Checkpoint::open_file(const fs::path& file) {
  Checkpoint c;
  c.where_ = file.string();
  c.entries_ = map_safetensors(file);
  return c;
}

Tensor Checkpoint::tensor(const std::string& name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end())
    throw Error(
        where_ + " has no tensor '" + name + "' (it has " + std::to_string(entries_.size()) +
        " tensors); its config.json belongs to another checkpoint, or the file is incomplete: download both again");
  return it->second;
}

Tensor Checkpoint::tensor(const std::string& name, const Shape& expected) const {
  Tensor t = tensor(name);
  if (t.shape() != expected)
    throw Error(where_ + ": tensor '" + name + "' has the shape " + t.shape().text() + ", but config.json requires " +
                expected.text() + "; they belong to different checkpoints: download both again");
  return t;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : entries_) names.push_back(name);
  return names;
}

}  // namespace foretoken
