// Files of JSON lines that this program appends to. A line is written whole and flushed; a file belongs to one process
// at a time and holds lines of one kind; whatever else a user names by mistake is refused and stays as it is. This
// module must not know what the lines mean.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/text/regular_file.h"

namespace foretoken {

// What the lines of a file have in common.
struct LineKind {
  std::string name;                // for messages: "results of `foretoken run`"
  std::vector<std::string> first;  // keys that stand first in a line, in this order, so that a torn one is recognized
  // How lines begin, of this version and of earlier ones. A piece without newline at the end of a file is a torn line
  // only where it begins so and is JSON as far as it goes.
  std::vector<std::string> openings;
  std::function<void(const nlohmann::json& line, const std::string& where)> check;  // throws where it is another kind
};

struct JsonLine {
  int number = 0;  // in the file, from 1
  nlohmann::json value;
};

struct JsonLines {
  std::vector<JsonLine> lines;
  std::size_t whole = 0;    // bytes up to the end of the last whole line
  bool torn = false;        // a torn line follows: this program was killed while it wrote
  bool unfinished = false;  // the last line lacks its newline alone, as an editor may leave it
};

// Any line that is damaged or of another kind, and a piece at the end that this program did not write, is an Error with
// its number.
JsonLines read_json_lines(const std::filesystem::path& file, const LineKind& kind, Pipes pipes = Pipes::refused);

class JsonLinesFile {
 public:
  // Opens or creates (with its folders) and locks. A torn last line is cut off, with a notice on standard error.
  JsonLinesFile(const std::filesystem::path& file, const LineKind& kind);
  ~JsonLinesFile();
  JsonLinesFile(const JsonLinesFile&) = delete;

  const std::vector<JsonLine>& lines() const { return lines_; }  // those that were there when it was opened
  // On a line of its own, whatever somebody has appended since. Where the disk is full the file is left as it was.
  void append(nlohmann::json line);

 private:
  std::filesystem::path path_;
  LineKind kind_;
  Descriptor descriptor_;
  std::vector<JsonLine> lines_;
};

// An Error unless FILE is absent, empty, or of this kind.
void expect_json_lines(const std::filesystem::path& file, const LineKind& kind);

// Renames FILE, which must be of this kind, to FILE.N with the first N that is free, so that a fresh one can begin;
// returns the new name. Nothing happens, and the name is empty, where there is none or an empty one.
std::filesystem::path set_aside(const std::filesystem::path& file, const LineKind& kind);

}  // namespace foretoken
