#include "experiments/sweep/provenance.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <tuple>

#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "experiments/report/machine.h"
#include "experiments/session/interrupt.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/workload.h"
#include "framework/model/gguf/gguf_file.h"
#include "framework/model/in_parallel.h"
#include "framework/model/model_choice.h"
#include "framework/model/model_files.h"
#include "framework/text/json_file.h"
#include "framework/text/regular_file.h"
#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::int64_t kBlock = 4 << 20;  // bytes that are hashed alone
constexpr const char* kHash = "xxh3:";
constexpr const char* kAgain = "; to measure again name another file with --results";

std::uint64_t hash_of(const void* bytes, std::size_t count) { return XXH3_64bits(bytes, count); }

std::string text_of(std::uint64_t hash) {
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash));
  return hex;
}

// The hash of one block of a file; an errno, or 0, behind `error`.
std::uint64_t block_hash(const Descriptor& file, std::int64_t block, std::atomic<int>& error) {
  std::vector<char> bytes(std::size_t{kBlock});
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t n = ::pread(file.number(), bytes.data() + size, bytes.size() - size, block * kBlock + off_t(size));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) error = errno;
    if (n <= 0) break;
    size += std::size_t(n);
  }
  return hash_of(bytes.data(), size);
}

std::uint64_t hash_of_contents(const Descriptor& file, std::int64_t size, const std::string& who) {
  std::vector<std::uint64_t> hashes(std::size_t(size / kBlock + 1));  // of blocks; an empty last one tells the size
  std::atomic<int> error = 0;
  const auto blocks = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) hashes[std::size_t(i)] = block_hash(file, i, error);
  };
  in_parallel(std::int64_t(hashes.size()), kBlock, blocks, check_interrupt);
  if (error != 0)
    throw Error(who + " cannot be read to its end (" + std::strerror(error) + "); check the disk that it is on");
  return hash_of(hashes.data(), hashes.size() * sizeof hashes[0]);
}

// What changes where a file's contents do: all times are those of the file system, and nobody can set the last one.
using Identity = std::tuple<dev_t, ino_t, off_t, std::int64_t, std::int64_t>;

std::int64_t nanoseconds(const timespec& t) { return std::int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec; }

std::uint64_t hash_of_file(const fs::path& path) {
  static std::map<Identity, std::uint64_t> known;
  constexpr std::int64_t kSettled = 2'000'000'000;  // ns; a younger file may change again at the same time of its clock
  const std::string who = "the file " + path.string();
  const Descriptor file = open_input(path, who, "name a file, and check its permissions");
  struct stat s{};
  if (::fstat(file.number(), &s) != 0) throw Error(who + " cannot be read (" + std::strerror(errno) + ")");
  const Identity identity{s.st_dev, s.st_ino, s.st_size, nanoseconds(s.st_mtim), nanoseconds(s.st_ctim)};
  if (const auto found = known.find(identity); found != known.end()) return found->second;
  const std::uint64_t hash = hash_of_contents(file, s.st_size, who);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (nanoseconds(now) - nanoseconds(s.st_ctim) > kSettled) known[identity] = hash;
  return hash;
}

// Paths as a run names them, found beside its document too.
void add_model(const ModelChoice& choice, const fs::path& beside, std::vector<std::string>& paths) {
  paths.push_back(choice.directory.empty() ? choice.tokenizer_directory() : choice.directory);
  for (const std::string& shape : {choice.inflate, choice.random})
    if (shape.find('/') != std::string::npos)
      paths.push_back(is_one_file(locate(shape, beside)) ? shape : (fs::path(shape) / "config.json").string());
}

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

std::string fingerprint(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return "";
  if (!fs::is_directory(path, error)) return kHash + text_of(hash_of_file(path));
  std::map<std::string, std::uint64_t> files;
  for (const fs::path& file : files_of_model(path)) files[file.filename().string()] = hash_of_file(file);
  std::string all;
  for (const auto& [name, hash] : files) all += name + ":" + text_of(hash) + "\n";
  return kHash + text_of(hash_of(all.data(), all.size()));
}

std::map<std::string, ModelIdentity> named_models(const json& run, const Registries& registries, const fs::path& beside,
                                                  const std::map<std::string, std::string>& sources) {
  std::vector<ModelChoice> models = component_files(run, registries).models;
  if (const json& target = run["target"]; target.contains("model") && !target["model"].is_null())
    models.push_back(ModelChoice::read(target["model"], target.value("inflate", json())));
  std::map<std::string, ModelIdentity> found;
  for (const ModelChoice& choice : models) {
    const std::string& path = choice.directory;
    if (path.empty() || !sources.contains(path)) continue;
    found[path] = model_identity(locate(path, beside));
    found[path].hash = sources.at(path);
  }
  return found;
}

std::map<std::string, std::string> sources_of(const json& run, const Registries& registries, const fs::path& beside) {
  std::vector<std::string> paths{run["workload"]["prompts"]};
  if (const json& target = run["target"]; target.contains("model") && !target["model"].is_null())
    add_model(ModelChoice::read(target["model"], target.value("inflate", json())), beside, paths);
  const ComponentFiles files = component_files(run, registries);
  for (const ModelChoice& choice : files.models) add_model(choice, beside, paths);
  paths.insert(paths.end(), files.paths.begin(), files.paths.end());
  std::map<std::string, std::string> found;
  for (const std::string& path : paths)
    if (const std::string print = fingerprint(locate(path, beside)); !print.empty()) found[path] = print;
  return found;
}

namespace {

// Without what a device learned of itself meanwhile, which follows a semicolon.
std::string description_of(const MachineInfo& machine) {
  return machine.description.substr(0, machine.description.find(';'));
}

}  // namespace

bool same_origin(const Origin& a, const Origin& b) {
  const auto of = [](const Origin& o) {
    MachineInfo machine = o.machine.value_or(MachineInfo{});
    machine.description = description_of(machine);
    machine.clocks_mhz.reset();
    machine.power_limit_watts.reset();
    return std::tuple(o.commit, o.program, o.compiler, to_json(machine), o.sources);
  };
  return of(a) == of(b);
}

namespace {

// What is to be said of how many results, without their number and file.
class Differences {
 public:
  Differences(const fs::path& beside, const std::string& commit) : beside_(beside), commit_(commit) {}

  // Whether the result was measured with other contents. `here`: the machine that would measure it now.
  bool add(const Origin& origin, const MachineInfo& here) {
    if (origin.commit != commit_) ++kept_["by another commit than " + commit_];
    if (origin.machine) add_machine(*origin.machine, here);
    bool changed = false;
    for (const auto& [path, print] : origin.sources) changed |= add(path, print);
    return changed;
  }

  std::vector<std::string> sentences(const fs::path& file) const {
    std::vector<std::string> all;
    const auto say = [&](const std::string& what, long count, const std::string& end) {
      all.push_back(std::to_string(count) + (count == 1 ? " result in " : " results in ") + file.string() +
                    (count == 1 ? " was" : " were") + " measured " + what + (count == 1 ? " and is " : " and are ") +
                    end);
    };
    for (const auto& [what, count] : kept_) say(what, count, std::string("kept") + kAgain);
    for (const auto& [what, count] : changed_) say(what, count, "measured again");
    return all;
  }

 private:
  void add_machine(const MachineInfo& machine, const MachineInfo& here) {
    if (machine.cpu != here.cpu || machine.cores != here.cores) {
      ++kept_["on another machine (" + machine.cpu + ", " + std::to_string(machine.cores) + " cores)"];
    } else if (!here.description.empty() && description_of(machine) != description_of(here)) {
      ++kept_["on another device (" + description_of(machine) + ")"];
    }
  }

  bool add(const std::string& path, const std::string& then) {
    if (!prints_.contains(path)) prints_[path] = fingerprint(locate(path, beside_));
    const std::string now = prints_[path];
    if (now == then) return false;
    ++(now.empty() ? kept_["with " + path + ", which is not there any more,"]
                   : changed_["with other contents of " + path]);
    return !now.empty();
  }

  const fs::path beside_;
  const std::string commit_;
  std::map<std::string, std::string> prints_;   // of now, by path
  std::map<std::string, long> kept_, changed_;  // how many results, by what is different
};

MachineInfo machine_of_run(const Run& run, const std::function<MachineInfo(const json& engine)>& machine_here) {
  try {
    return machine_here(run.document.value("engine", json()));
  } catch (const Error&) {  // each run that needs it says so
    return host_of();
  }
}

}  // namespace

Origins origins_of(const std::vector<Run>& runs, const std::map<std::string, Origin>& measured, const fs::path& file,
                   const fs::path& beside, const std::string& commit,
                   const std::function<MachineInfo(const json& engine)>& machine_here) {
  Origins found;
  Differences differences(beside, commit);
  const Run* elsewhere = nullptr;  // a result of another kind of device
  std::size_t kept = 0;
  std::map<std::string, MachineInfo> machines;  // by the "engine" of runs
  for (const Run& run : runs) {
    if (!measured.contains(run.key)) continue;
    const Origin& origin = measured.at(run.key);
    const std::string engine = run.document.value("engine", json()).dump();
    if (!machines.contains(engine)) machines[engine] = machine_of_run(run, machine_here);
    const MachineInfo& here = machines[engine];
    if (differences.add(origin, here)) {
      found.changed.insert(run.key);
      continue;
    }
    ++kept;
    if (origin.machine && here.device != "" && origin.machine->device != here.device) elsewhere = &run;
  }
  if (elsewhere && kept < runs.size())
    throw Error("results in " + file.string() + " were measured on the device " +
                measured.at(elsewhere->key).machine->device +
                ", but \"device\": " + shown(elsewhere->document["engine"]["device"]) + " is " +
                machine_of_run(*elsewhere, machine_here).device +
                " here, so that the file would hold both; name another file with --results, or a device in the run");
  found.sentences = differences.sentences(file);
  return found;
}

}  // namespace foretoken
