#include "experiments/report/json_lines.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/report/compressed.h"
#include "experiments/report/terminal.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

// Whether the text is a prefix of valid JSON.
bool is_cut_json(std::string_view text) {
  try {
    [[maybe_unused]] const json whole = json::parse(text.begin(), text.end());
    return false;
  } catch (const json::parse_error& e) {
    return e.byte > text.size();
  } catch (const json::exception&) {  // a number out of range
    return false;
  }
}

bool is_torn(std::string_view piece, const LineKind& kind) {
  if (piece.size() <= kind.opening.size()) return kind.opening.starts_with(piece);
  return piece.starts_with(kind.opening) && is_cut_json(piece);
}

JsonLines parse(std::string_view text, const std::string& file, const LineKind& kind) {
  JsonLines out;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    const std::string_view line = text.substr(at, end - at);
    const std::string where = file + ":" + std::to_string(++number);
    const bool blank = line.find_first_not_of(" \t\r") == std::string_view::npos;
    const bool whole = blank || json::accept(line);
    if (!whole && end == std::string_view::npos && is_torn(line, kind)) {
      out.torn = true;
      break;
    }
    if (!whole && out.lines.empty())
      throw Error(where + ": this is not one of the " + kind.name + "; name a file of these, or a new one");
    if (!whole)
      throw Error(where + ": this is not one of the " + kind.name + ", so the line is damaged or was added by hand; " +
                  kind.remedy);
    out.unfinished = end == std::string_view::npos;
    at = out.whole = out.unfinished ? text.size() : end + 1;
    if (blank) continue;
    json value = parse_json(line, where);
    kind.check(value, where);
    out.lines.push_back({number, std::move(value)});
  }
  return out;
}

// Lines are added to plain files: a process that is killed leaves whole lines there.
[[noreturn]] void refuse_compressed(const std::filesystem::path& file, const LineKind& kind) {
  throw Error(
      "cannot write " + kind.holds + " to '" + file.string() +
      "': lines are added to plain files, not to compressed ones; unpack it with gunzip or unxz, or name a file "
      "without .gz or .xz");
}

// Holds the file's lock while it is open.
int open_alone(const std::filesystem::path& file, const LineKind& kind, int flags) {
  if (has_compressed_name(file)) refuse_compressed(file, kind);
  const int descriptor = ::open(file.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags, 0644);
  if (descriptor < 0)
    throw Error("cannot write " + kind.holds + " to '" + file.string() + "' (" + std::strerror(errno) + "); " +
                kind.choose);
  struct stat status{};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw Error("'" + file.string() + "' is not a regular file, so " + kind.holds + " cannot be stored in it; " +
                kind.choose);
  }
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  ::close(descriptor);
  throw Error("cannot write " + kind.holds + " to '" + file.string() + "': " + kind.busy);
}

std::filesystem::path with_folders(const std::filesystem::path& file, const LineKind& kind) {
  std::error_code error;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  if (error)
    throw Error("cannot make the folder '" + file.parent_path().string() + "' (" + error.message() + "); " +
                kind.choose);
  return file;
}

// Moves FROM to TO; false if TO exists.
bool moved(const std::filesystem::path& from, const std::filesystem::path& to, const LineKind& kind) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST) return false;
  std::error_code error;
  if (errno == EINVAL || errno == ENOSYS) {  // a file system without that operation
    if (std::filesystem::symlink_status(to, error).type() != std::filesystem::file_type::not_found) return false;
    std::filesystem::rename(from, to, error);
    if (!error) return true;
  } else {
    error = std::error_code(errno, std::generic_category());
  }
  throw Error("cannot rename '" + from.string() + "' (" + error.message() + "); " + kind.choose);
}

}  // namespace

JsonLines read_json_lines(const std::filesystem::path& file, const LineKind& kind, Pipes pipes) {
  const std::string who = "the " + kind.file + " '" + file.string() + "'";
  const std::string bytes = read_bytes(file, who, "name a .jsonl file with " + kind.name, pipes);
  if (!is_compressed(bytes)) return parse(bytes, file.string(), kind);
  JsonLines found = parse(decompress(bytes, who), file.string(), kind);
  found.compressed = true;
  return found;
}

std::string text_of(json line, const LineKind& kind) {
  const auto dumped = [](const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); };
  std::string text;
  for (const std::string& key : kind.first) {
    text += (text.empty() ? "{" : ",") + dumped(key) + ":" + dumped(line.at(key));
    line.erase(key);
  }
  return text + (line.empty() ? "}" : "," + dumped(line).substr(1)) + "\n";
}

JsonLinesFile::JsonLinesFile(const std::filesystem::path& file, const LineKind& kind)
    : path_(with_folders(file, kind)), kind_(kind), descriptor_(open_alone(file, kind, O_CREAT)) {
  JsonLines found = read_json_lines(file, kind);
  if (found.compressed) refuse_compressed(file, kind);
  if (found.torn)
    std::fprintf(stderr,
                 "foretoken: the last line of %s is incomplete (a run was killed while writing); it is cut off\n",
                 one_line(file.string()).c_str());
  if (found.torn && ::ftruncate(descriptor_.number(), off_t(found.whole)) != 0)
    throw Error("cannot cut the incomplete last line off '" + file.string() + "' (" + std::strerror(errno) + "); " +
                kind.choose);
  if (found.unfinished && ::write(descriptor_.number(), "\n", 1) != 1)
    throw Error("cannot write to '" + file.string() + "' (" + std::strerror(errno) + "); " + kind.choose);
  lines_ = std::move(found.lines);
}

JsonLinesFile::~JsonLinesFile() = default;

void JsonLinesFile::append(json line) {
  const int descriptor = descriptor_.number();
  const off_t before = ::lseek(descriptor, 0, SEEK_END);
  char last = '\n';
  if (before > 0) (void)!::pread(descriptor, &last, 1, before - 1);
  const std::string text = (last == '\n' ? "" : "\n") + text_of(std::move(line), kind_);
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(descriptor, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const std::string why = std::strerror(errno);
      if (::ftruncate(descriptor, before) != 0)
        std::fprintf(stderr, "foretoken: an incomplete line remains at the end of %s\n",
                     one_line(path_.string()).c_str());
      throw Error("cannot write to '" + path_.string() + "' (" + why + "); " + kind_.full);
    }
    at += std::size_t(n);
  }
  if (::fsync(descriptor) != 0 && errno != EINVAL && errno != EROFS)
    throw Error("cannot flush '" + path_.string() + "' (" + std::strerror(errno) + "); " + kind_.full);
}

void expect_json_lines(const std::filesystem::path& file, const LineKind& kind) {
  std::error_code ignored;
  if (std::filesystem::status(file, ignored).type() != std::filesystem::file_type::not_found)
    (void)read_json_lines(file, kind);
}

std::filesystem::path set_aside(const std::filesystem::path& file, const LineKind& kind) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return {};
  const Descriptor alone(open_alone(file, kind, 0));
  const JsonLines found = read_json_lines(file, kind);
  if (found.lines.empty() && !found.torn) return {};
  for (int n = 1;; ++n)
    if (const std::filesystem::path to = file.string() + "." + std::to_string(n); moved(file, to, kind)) return to;
}

}  // namespace foretoken
