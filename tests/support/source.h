// Reads the repository's own sources for the tests of its architecture. It parses C++ only by counting braces.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace foretoken::test {

inline const std::vector<std::string> kCode = {".h", ".cpp", ".cu", ".cuh"};

struct SourceFile {
  std::string path;  // from the root of the repository, with forward slashes
  std::string text;
};

struct Function {
  std::string name;  // as written before its parameters; TEST(suite, name) for a test
  int first = 0;     // line of its declaration, from 1
  int lines = 0;     // through its closing brace
};

// All files under folders of the repository with one of the endings: extensions (".cpp") or whole names. Sorted.
std::vector<SourceFile> read_sources(const std::vector<std::string>& folders, const std::vector<std::string>& endings);

// The text of one file of the repository; throws std::runtime_error if it is missing.
std::string read_source(const std::string& path);

std::vector<std::string> split_lines(const std::string& text);

// The text with comments, the contents of literals and preprocessor lines blanked; every line keeps its number.
std::string code_only(const std::string& text);

// The same, but only comments are blanked.
std::string without_comments(const std::string& text);

// Every function defined in the namespaces and classes of the text; std::runtime_error if braces do not match.
std::vector<Function> functions_of(const std::string& text);

}  // namespace foretoken::test
