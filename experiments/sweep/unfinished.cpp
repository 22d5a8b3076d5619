#include "experiments/sweep/unfinished.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <system_error>

#include <spdlog/spdlog.h>

#include "experiments/report/results.h"
#include "experiments/sweep/alternation.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* kEnd = ".json";

// Null where it is absent or damaged, as after a power failure, or where it is of another run or number than its name
// says, as after files were renamed.
json read(const fs::path& file, const std::string& key, int k) {
  std::ifstream in(file, std::ios::binary);
  json value = in ? json::parse(in, nullptr, false) : json();
  const bool fits = value.is_object() && value.value("key", json()) == key && value.value("alternation", json()) == k;
  if (fits && value.value("schema", json()) != kResultSchema)
    throw Error(file.parent_path().string() +
                " holds alternations that another version measured, which this one cannot go on from; remove that "
                "folder to measure them again");
  return fits ? value : json();
}

// The folder is removed only where nothing else is in it.
void remove_if_empty(const fs::path& folder) {
  std::error_code ignored;
  fs::remove(folder, ignored);
}

}  // namespace

namespace {

// The result of a run with the alternations that it has.
Result result_so_far(const Unfinished& unfinished, const std::string& key) {
  std::vector<MeasuredAlternation> done;
  for (int k = 0, count = unfinished.count(key); k < count; ++k) done.push_back(alternation_of(unfinished.at(key, k)));
  if (done.empty()) throw Error("the alternations are damaged");
  const Run run{done.back().run, done.back().axes, key};
  if (key_of(run.document) != key) throw Error("the alternations are of another run than their names say");
  const DoneOf progress{.done = int(done.size()), .of = run.document.at("measure").at("repeats")};
  Result result = result_of(run, std::move(done));
  result.unfinished = progress;
  return result;
}

}  // namespace

std::vector<Result> load_with_unfinished(const fs::path& results) {
  // The folder first: a run that ends meanwhile is then in the file.
  const Unfinished unfinished(results);
  std::map<std::string, std::pair<Result, std::string>> found;  // results, or why there is none
  for (const std::string& key : unfinished.keys()) {
    auto& [result, failure] = found[key];
    failure = failure_of([&, &into = result] { into = result_so_far(unfinished, key); });
  }
  std::vector<Result> all = load_results(results);
  for (const Result& result : all) found.erase(result.key);  // also one that failed stays in sight
  for (auto& [key, one] : found)
    if (one.second.empty())
      all.push_back(std::move(one.first));
    else
      spdlog::warn("a run in {} is left out: {}", unfinished.folder().string(), one.second);
  return all;
}

Unfinished::Unfinished(const fs::path& results) : folder_(results) { folder_ += ".unfinished"; }

fs::path Unfinished::file(const std::string& key, int k) const {
  return folder_ / (key + "-" + std::to_string(k) + kEnd);
}

void Unfinished::add(const json& alternation) {
  const fs::path whole = file(alternation.at("key"), alternation.at("alternation"));
  fs::path part = whole;
  part += ".part";
  std::error_code error;
  fs::create_directories(folder_, error);
  {
    std::ofstream out(part, std::ios::binary);
    out << alternation.dump(-1, ' ', false, json::error_handler_t::replace) << std::flush;
    if (!out) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) fs::rename(part, whole, error);
  if (error)
    throw Error("the alternation cannot be kept in " + folder_.string() + " (" + error.message() +
                "); make room there, or name another file with --results");
}

int Unfinished::count(const std::string& key) const {
  int k = 0;
  while (!read(file(key, k), key, k).is_null()) ++k;
  return k;
}

json Unfinished::at(const std::string& key, int k) const {
  json found = read(file(key, k), key, k);
  if (found.is_null())
    throw Error(file(key, k).string() +
                " is gone, which the sweep has written; start it again, which measures it anew");
  return found;
}

std::vector<fs::path> Unfinished::files() const {
  std::vector<fs::path> all;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder_, absent)) all.push_back(entry.path());
  return all;
}

std::set<std::string> Unfinished::keys() const {
  std::set<std::string> keys;
  for (const fs::path& path : files()) {
    const std::string name = path.filename().string();
    if (path.extension() == kEnd) keys.insert(name.substr(0, name.rfind('-')));
  }
  return keys;
}

void Unfinished::drop(const std::string& key) {
  for (const fs::path& path : files())
    if (path.filename().string().starts_with(key + "-")) fs::remove(path);
  remove_if_empty(folder_);
}

void Unfinished::drop_all() {
  for (const fs::path& path : files())
    if (path.extension() == kEnd || path.extension() == ".part") fs::remove(path);
  remove_if_empty(folder_);
}

int Unfinished::drop_orphans(const std::string& sweep, const std::set<std::string>& keys) {
  int dropped = 0;
  for (const fs::path& path : files()) {
    const std::string name = path.filename().string(), key = name.substr(0, name.rfind('-'));
    if (path.extension() != kEnd || keys.contains(key)) continue;
    std::ifstream in(path, std::ios::binary);
    const json value = json::parse(in, nullptr, false);
    if (!value.is_object() || value.value("sweep", json()) != sweep) continue;
    in.close(), fs::remove(path), ++dropped;
  }
  remove_if_empty(folder_);
  return dropped;
}

void Unfinished::move_files(const std::vector<fs::path>& files, const Unfinished& to) const {
  for (const fs::path& path : files) {
    if (path.extension() != kEnd) continue;
    fs::create_directories(to.folder_);
    fs::rename(path, to.folder_ / path.filename());
  }
  remove_if_empty(folder_);
}

void Unfinished::move(const std::string& key, const Unfinished& to) const {
  std::vector<fs::path> own = files();
  std::erase_if(own, [&](const fs::path& path) { return !path.filename().string().starts_with(key + "-"); });
  move_files(own, to);
}

void Unfinished::move_all(const Unfinished& to) const { move_files(files(), to); }

}  // namespace foretoken
