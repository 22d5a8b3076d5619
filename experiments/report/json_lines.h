// Files of JSON lines that this program appends to. A line is written whole and flushed; a file belongs to one process
// at a time and holds lines of one kind; any other file that a user names by mistake is refused and not changed. This
// module must not know what the lines mean.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/text/regular_file.h"

namespace foretoken {

// The kind of a file's lines.
struct LineKind {
  std::string name;                // for messages: "results of `foretoken run`"
  std::vector<std::string> first;  // the first keys of a line, in this order, by which a torn line is recognized
  // How lines begin. A piece without newline at the end of a file is a torn line only if it begins so and is a prefix
  // of valid JSON.
  std::string opening;
  std::function<void(const nlohmann::json& line, const std::string& where)> check;  // throws if it is another kind
  std::string file = "results file";  // what such a file is called, for messages
  std::string remedy = "remove it (its run is measured again), or name another file";  // of a damaged line
  std::string holds = "results";                                                       // what is written to it
  std::string choose = "choose another file with --results";                           // where it cannot be written
  std::string busy = "another process is writing to it; wait, or " + choose;           // where its lock is taken
  std::string full = "make room and start the sweep again: finished runs are kept";    // where a line cannot be added
};

struct JsonLine {
  int number = 0;  // in the file, from 1
  nlohmann::json value;
};

struct JsonLines {
  std::vector<JsonLine> lines;
  std::size_t whole = 0;    // bytes up to the end of the last whole line
  bool torn = false;        // a torn line follows: this program was killed while it wrote
  bool unfinished = false;  // the last line is complete but for its newline, as some editors leave it
  bool compressed = false;  // by gzip or xz; nothing can be appended
};

// The lines of a plain file or of one that gzip or xz compressed, whatever its name. Any line that is damaged or of
// another kind, and a piece at the end that this program did not write, is an Error with its number.
JsonLines read_json_lines(const std::filesystem::path& file, const LineKind& kind, Pipes pipes = Pipes::refused);

// A line as it is written, with its newline.
std::string text_of(nlohmann::json line, const LineKind& kind);

class JsonLinesFile {
 public:
  // Opens or creates (with its folders) and locks; a compressed file is an Error. A torn last line is cut off, with a
  // notice on standard error.
  JsonLinesFile(const std::filesystem::path& file, const LineKind& kind);
  ~JsonLinesFile();
  JsonLinesFile(const JsonLinesFile&) = delete;

  const std::vector<JsonLine>& lines() const { return lines_; }  // those in the file when it was opened
  // Always on a new line, even if something was appended since. If the disk is full the file is left unchanged.
  void append(nlohmann::json line);

 private:
  std::filesystem::path path_;
  LineKind kind_;
  Descriptor descriptor_;
  std::vector<JsonLine> lines_;
};

// An Error unless FILE is absent, empty, or of this kind.
void expect_json_lines(const std::filesystem::path& file, const LineKind& kind);

// Renames FILE, which must be of this kind, to FILE.N with the first free N, so that a new file can begin; returns the
// new name. If FILE is absent or empty nothing happens and the name is empty.
std::filesystem::path set_aside(const std::filesystem::path& file, const LineKind& kind);

}  // namespace foretoken
