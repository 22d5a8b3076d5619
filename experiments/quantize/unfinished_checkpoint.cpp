#include "experiments/quantize/unfinished_checkpoint.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "framework/model/checkpoint.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char *kList = "unfinished.json", *kLock = "lock";

// The same directory by a path whose last part is its name: of "new/" and "new/." "new".
fs::path named(const fs::path& directory) {
  const fs::path normal = directory.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

void write_json(const fs::path& file, const json& value) {
  const std::string text = value.dump(2) + "\n";
  const std::string_view piece = text;
  write_whole(file, {&piece, 1});
}

}  // namespace

UnfinishedCheckpoint::UnfinishedCheckpoint(const fs::path& out, const json& job, int shards)
    : out_(named(out)), folder_(out_.string() + ".partial"), job_(job), shards_(shards) {
  const auto expect_no_out = [&] {
    if (has_file(out_)) throw Error(out_.string() + " exists already; name another directory with --out, or remove it");
  };
  expect_no_out();
  try {
    make();
    lock();
    expect_no_out();  // another process may have finished meanwhile
    open();
  } catch (...) {
    if (std::error_code ignored; made_) fs::remove_all(folder_, ignored);
    throw;
  }
}

void UnfinishedCheckpoint::make() {
  std::error_code why;
  made_ = fs::create_directories(folder_, why);
  if (why)
    throw Error(folder_.string() + " cannot be made (" + why.message() +
                "); make room or correct the permissions, or name another --out");
  made_ |= fs::is_empty(folder_, why);  // a process was killed before it had its lock
  if (!made_ && !has_file(folder_ / kList) && !has_file(folder_ / kLock))
    throw Error(folder_.string() + " exists, but this command did not make it; remove it, or name another --out");
}

void UnfinishedCheckpoint::lock() {
  const fs::path file = folder_ / kLock;
  lock_.emplace(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock_->number() < 0)
    throw Error(file.string() + " cannot be written (" + std::strerror(errno) +
                "); make room or correct the permissions, then give the command again");
  // A file system without locks is used without. A file that is removed already was another process's to the end.
  struct stat found = {};
  const bool taken = ::flock(lock_->number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!taken && (::fstat(lock_->number(), &found) != 0 || found.st_nlink > 0)) return;
  made_ = false;
  throw Error("another process is writing " + folder_.string() + "; wait for its end, or name another --out");
}

// Reads the list, or begins one.
void UnfinishedCheckpoint::open() {
  if (const fs::path list = folder_ / kList; has_file(list)) {
    const json found = read_json(list);
    if (!found.is_object() || found.value("job", json()) != job_)
      throw Error(folder_.string() + " holds the unfinished work of another command; remove it, or name another --out");
    for (const auto& [name, done] : found["shards"].items()) {
      if (!has_file(folder_ / name)) continue;
      if (fs::file_size(folder_ / name) != done.value("file_bytes", std::uintmax_t(0)))
        throw Error((folder_ / name).string() + " is not as long as it was written; remove " + folder_.string() +
                    " and give the command again");
      shards_done_[name] = done;
    }
  } else {
    write_list();
  }
  fs::create_directories(scratch());
}

UnfinishedCheckpoint::~UnfinishedCheckpoint() {
  std::error_code ignored;
  if (made_ && shards_done_.empty()) fs::remove_all(folder_, ignored);
}

std::string UnfinishedCheckpoint::name_of(int shard) const {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", shard + 1, shards_);
  return name;
}

void UnfinishedCheckpoint::write_list() const {
  write_json(folder_ / kList, {{"job", job_}, {"shards", shards_done_}});
}

void UnfinishedCheckpoint::add(int shard, std::span<const StoredTensor> tensors, const json& facts) {
  write_safetensors(folder_ / name_of(shard), tensors);
  json bytes = json::object();
  for (const StoredTensor& t : tensors) bytes[t.name] = t.values.bytes();
  shards_done_[name_of(shard)] = {
      {"facts", facts}, {"bytes", bytes}, {"file_bytes", fs::file_size(folder_ / name_of(shard))}};
  write_list();
}

void UnfinishedCheckpoint::finish() {
  json map = json::object();
  std::int64_t bytes = 0;
  for (const auto& [shard, done] : shards_done_.items())
    for (const auto& [name, size] : done["bytes"].items()) map[name] = shard, bytes += size.get<std::int64_t>();
  write_json(folder_ / "model.safetensors.index.json", {{"metadata", {{"total_size", bytes}}}, {"weight_map", map}});
  fs::remove_all(scratch());
  fs::rename(folder_, out_);
  fs::remove(out_ / kList);
  fs::remove(out_ / kLock);
}

}  // namespace foretoken
