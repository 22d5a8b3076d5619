#include "experiments/quantize/unfinished.h"

#include <cstdio>
#include <string_view>

#include "framework/model/checkpoint.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kList = "unfinished.json";

void write_json(const fs::path& file, const json& value) {
  const std::string text = value.dump(2) + "\n";
  const std::string_view piece = text;
  write_whole(file, {&piece, 1});
}

}  // namespace

Unfinished::Unfinished(const fs::path& out, const json& job, int shards)
    : out_(out), folder_(out.string() + ".partial"), job_(job), shards_(shards) {
  if (has_file(out_)) throw Error(out_.string() + " exists already; name another directory with --out, or remove it");
  if (const fs::path list = folder_ / kList; has_file(list)) {
    const json found = read_json(list);
    if (!found.is_object() || found.value("job", json()) != job_)
      throw Error(folder_.string() + " holds the unfinished work of another command; remove it, or name another --out");
    for (const auto& [name, done] : found["shards"].items())
      if (has_file(folder_ / name)) shards_done_[name] = done;
    return;
  }
  if (has_file(folder_))
    throw Error(folder_.string() + " exists, but this command did not make it; remove it, or name another --out");
  fs::create_directories(folder_);
  fs::create_directories(scratch());
  write_list();
}

Unfinished::~Unfinished() {
  std::error_code ignored;
  if (shards_done_.empty()) fs::remove_all(folder_, ignored);
}

std::string Unfinished::name_of(int shard) const {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", shard + 1, shards_);
  return name;
}

void Unfinished::write_list() const { write_json(folder_ / kList, {{"job", job_}, {"shards", shards_done_}}); }

void Unfinished::add(int shard, std::span<const StoredTensor> tensors, const json& facts) {
  write_safetensors(folder_ / name_of(shard), tensors);
  json bytes = json::object();
  for (const StoredTensor& t : tensors) bytes[t.name] = t.values.bytes();
  shards_done_[name_of(shard)] = {{"facts", facts}, {"bytes", bytes}};
  write_list();
}

void Unfinished::finish() {
  json map = json::object();
  std::int64_t bytes = 0;
  for (const auto& [shard, done] : shards_done_.items())
    for (const auto& [name, size] : done["bytes"].items()) map[name] = shard, bytes += size.get<std::int64_t>();
  write_json(folder_ / "model.safetensors.index.json", {{"metadata", {{"total_size", bytes}}}, {"weight_map", map}});
  fs::remove_all(scratch());
  fs::remove(folder_ / kList);
  fs::rename(folder_, out_);
}

}  // namespace foretoken
