#include "experiments/report/results.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

struct Parsed {
  std::vector<json> lines;
  std::size_t whole = 0;    // bytes up to the end of the last whole line
  bool torn = false;        // a piece of a line follows
  bool unfinished = false;  // the last line is whole but for its newline, as an editor may leave it
};

// Whether a piece without newline can be what a killed write left: a prefix of a line (whose keys are sorted) after
// lines that are results, or at the beginning of the file. Anything else is somebody's file, which must not be cut.
bool is_torn_result(std::string_view piece, bool after_results) {
  const auto begins = [&](std::string_view line) {
    return piece.substr(0, line.size()) == line.substr(0, piece.size());
  };
  return after_results || begins("{\"agreement\":") || begins("{\"axes\":");
}

json result_line(std::string_view text, const std::string& where) {
  json value = parse_json(text, where);
  if (!value.is_object())
    throw Error(where + ": not a JSON object; the file is damaged, remove this line or name another file");
  if (!value.contains("schema") || value["schema"] != kResultSchema)
    throw Error(where + ": not a result line of schema " + std::to_string(kResultSchema) +
                "; name a results file of this version");
  if (!value.contains("key") || !value["key"].is_string() || !value.contains("run") || !value["run"].is_object())
    throw Error(where +
                ": a result line needs 'key' and 'run'; the file is damaged, remove this line or name another file");
  for (const char* text_key : {"commit", "error", "promise"})
    if (value.contains(text_key) && !value[text_key].is_string())
      throw Error(where + ": '" + text_key + "' is " + shown(value[text_key]) +
                  ", but must be a string; the file is damaged, remove this line");
  for (const char* group : {"axes", "machine", "agreement"})
    if (value.contains(group) && !value[group].is_object())
      throw Error(where + ": '" + group + "' is " + shown(value[group]) +
                  ", but must be an object; the file is damaged, remove this line");
  return value;
}

Parsed parse(const std::filesystem::path& file) {
  if (const std::string why = absence_of(file); !why.empty())
    throw Error("the results file '" + file.string() + "' " + why);
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file))
    throw Error("cannot read the results '" + file.string() +
                "'; name a .jsonl file that `foretoken run` or `quickstart` wrote");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Parsed out;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    const std::string_view line = std::string_view(text).substr(at, end - at);
    const std::string where = file.string() + ":" + std::to_string(++number);
    if (end == std::string::npos && !json::accept(line)) {
      if (!is_torn_result(line, !out.lines.empty()))
        throw Error(where +
                    ": not a result line; name a file that `foretoken run` or `quickstart` wrote, or a new one");
      out.torn = true;
      break;
    }
    out.unfinished = end == std::string::npos;
    at = out.whole = out.unfinished ? text.size() : end + 1;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) out.lines.push_back(result_line(line, where));
  }
  return out;
}

// A descriptor that holds the file's lock.
int open_alone(const std::filesystem::path& file, int flags) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | flags, 0644);
  if (descriptor < 0)
    throw Error("cannot write results to '" + file.string() + "' (" + std::strerror(errno) +
                "); choose another place with --results");
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw Error("'" + file.string() +
                "' is no regular file, so results cannot be kept in it; choose another place with --results");
  }
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  ::close(descriptor);
  throw Error("another process is writing to '" + file.string() +
              "'; wait for it, or choose another file with --results");
}

}  // namespace

std::vector<json> load_results(const std::filesystem::path& file) {
  Parsed p = parse(file);
  if (p.torn)
    std::fprintf(stderr,
                 "foretoken: the last line of %s is incomplete (a run was killed while writing); it is left out\n",
                 file.c_str());
  return std::move(p.lines);
}

ResultsFile::ResultsFile(const std::filesystem::path& file) : path_(file) {
  std::error_code error;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  if (error)
    throw Error("cannot make the folder '" + file.parent_path().string() + "' (" + error.message() +
                "); choose another place with --results");
  descriptor_ = open_alone(file, O_CREAT);
  try {
    const Parsed p = parse(file);
    if (p.torn)
      std::fprintf(stderr,
                   "foretoken: the last line of %s is incomplete (a run was killed while writing); it is cut off\n",
                   file.c_str());
    if (p.torn && ::ftruncate(descriptor_, off_t(p.whole)) != 0)
      throw Error("cannot cut the incomplete last line off '" + file.string() + "' (" + std::strerror(errno) +
                  "); choose another place with --results");
    if (p.unfinished && ::write(descriptor_, "\n", 1) != 1)
      throw Error("cannot write to '" + file.string() + "' (" + std::strerror(errno) +
                  "); choose another place with --results");
    for (const json& line : p.lines) note(line);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

ResultsFile::~ResultsFile() { ::close(descriptor_); }

void ResultsFile::append(const json& line) {
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(descriptor_, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const std::string why = std::strerror(errno);
      if (::ftruncate(descriptor_, before) != 0)
        std::fprintf(stderr, "foretoken: an incomplete line remains at the end of %s\n", path_.c_str());
      throw Error("cannot write to '" + path_.string() + "' (" + why +
                  "); make room and start the sweep again: finished runs are kept");
    }
    at += std::size_t(n);
  }
  if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS)
    throw Error("cannot flush '" + path_.string() + "' (" + std::strerror(errno) +
                "); make room and start the sweep again: finished runs are kept");
  note(line);
}

void ResultsFile::note(const json& line) {
  if (line.contains("error")) return;
  json origin = json::object();
  for (const char* key : {"commit", "machine", "sources"}) origin[key] = line.value(key, json());
  origins_[line["key"].get<std::string>()] = std::move(origin);
}

void set_aside(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return;
  const int descriptor = open_alone(file, 0);
  std::filesystem::rename(file, file.string() + ".1", error);
  ::close(descriptor);
  if (error)
    throw Error("cannot rename '" + file.string() + "' (" + error.message() + "); choose another place with --results");
}

}  // namespace foretoken
