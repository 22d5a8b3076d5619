#include "tests/support/source.h"

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace foretoken::test {
namespace {

namespace fs = std::filesystem;

// The lexical class of a character of a source file.
enum class Part { code, comment, literal };

// The end of the literal that begins at `i`: a string, a raw string or a character.
size_t literal_end(const std::string& text, size_t i) {
  if (text[i] == '"' && i > 0 && text[i - 1] == 'R') {
    const size_t open = text.find('(', i);
    const std::string close = ")" + text.substr(i + 1, open - i - 1) + "\"";
    return std::min(text.size(), text.find(close, open) + close.size());
  }
  size_t end = i + 1;
  while (end < text.size() && text[end] != text[i] && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
  return std::min(text.size(), end + 1);
}

bool starts_literal(const std::string& text, size_t i) {
  if (text[i] == '"') return true;
  const bool separates_digits = i > 0 && std::isxdigit(static_cast<unsigned char>(text[i - 1]));
  return text[i] == '\'' && !separates_digits;
}

std::vector<Part> parts_of(const std::string& text) {
  std::vector<Part> parts(text.size(), Part::code);
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    Part part = Part::code;
    if (text.compare(i, 2, "//") == 0) {
      end = std::min(text.size(), text.find('\n', i));
      part = Part::comment;
    } else if (text.compare(i, 2, "/*") == 0) {
      const size_t close = text.find("*/", i + 2);
      end = close == std::string::npos ? text.size() : close + 2;
      part = Part::comment;
    } else if (starts_literal(text, i)) {
      end = literal_end(text, i);
      part = Part::literal;
    }
    std::fill(parts.begin() + i, parts.begin() + end, part);
    i = end;
  }
  return parts;
}

void blank_preprocessor(std::string& text) {
  bool continued = false;
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.size(), text.find('\n', i));
    const size_t first = text.find_first_not_of(" \t", i);
    const bool directive = continued || (first < end && text[first] == '#');
    continued = directive && end > i && text[end - 1] == '\\';
    if (directive) std::fill(text.begin() + i, text.begin() + end, ' ');
    i = end + 1;
  }
}

// `template <...>` in front of a declaration, with balanced angles, and operators, whose names contain symbols.
std::string plain_declaration(std::string head) {
  for (size_t at; (at = head.find("template")) != std::string::npos;) {
    size_t i = head.find('<', at);
    int depth = 0;
    do depth += i < head.size() ? (head[i] == '<') - (head[i] == '>') : 0;
    while (++i < head.size() && depth > 0);
    head.erase(at, i - at);
  }
  return std::regex_replace(head, std::regex(R"(operator\s*(\(\)|[^\s\w(]+))"), "operator_");
}

enum class Scope { enclosing, function, other };  // enclosing: a namespace or a class

Scope scope_of(const std::string& written) {
  static const std::regex enclosing(R"(\b(namespace|class|struct|union|enum|extern)\b)");
  const std::string head = plain_declaration(written);
  const size_t parameters = head.find('(');
  if (std::regex_search(head.substr(0, parameters), enclosing)) return Scope::enclosing;
  if (parameters == std::string::npos || head.find('=') < parameters) return Scope::other;
  return Scope::function;
}

std::string name_of(const std::string& written) {
  static const std::regex spaces(R"(\s+)"), last(R"(([\w:~]+)\s*$)");
  const std::string head = plain_declaration(written);
  const size_t parameters = head.find('(');
  const std::string before = std::regex_replace(head.substr(0, parameters), spaces, " ");
  std::smatch match;
  if (!std::regex_search(before, match, last)) return before;
  if (match.str(1).rfind("TEST", 0) != 0) return match.str(1);
  return std::regex_replace(head.substr(head.find("TEST"), head.find(')') + 1 - head.find("TEST")), spaces, " ");
}

// Walks the text once, keeping the declaration in front of each brace.
class FunctionFinder {
 public:
  explicit FunctionFinder(const std::string& code) : code_(code) {}

  std::vector<Function> run() {
    for (size_t i = 0; i < code_.size(); ++i) step(i);
    if (!open_.empty()) throw std::runtime_error("a brace stays open after line " + std::to_string(open_.back().line));
    return found_;
  }

 private:
  struct Open {
    Scope scope;
    std::string head;
    int line, parens;
  };

  void step(size_t i) {
    const char c = code_[i];
    line_ += c == '\n';
    if (c == '(') ++parens_;
    if (c == ')') --parens_;
    if (c == '{') return open();
    if (c == '}') return close(i);
    if (!declares()) return;
    if (c == ';' && parens_ == 0) return head_.clear();
    if (head_.empty() && !std::isspace(static_cast<unsigned char>(c))) first_ = line_;
    if (!head_.empty() || !std::isspace(static_cast<unsigned char>(c))) head_ += c;
  }

  bool declares() const { return open_.empty() || open_.back().scope == Scope::enclosing; }

  void open() {
    const Scope scope = !declares() || parens_ > 0 ? Scope::other : scope_of(head_);
    open_.push_back({scope, head_, first_, parens_});
    if (scope == Scope::enclosing) head_.clear();
  }

  void close(size_t i) {
    if (open_.empty()) throw std::runtime_error("a brace closed in line " + std::to_string(line_) + " was not open");
    const Open opened = open_.back();
    open_.pop_back();
    parens_ = opened.parens;
    if (!declares()) return;
    const size_t next = code_.find_first_not_of(" \t\n", i + 1);
    const bool initializer = next < code_.size() && std::string(",{)").find(code_[next]) != std::string::npos;
    if (opened.scope == Scope::function && !initializer)
      found_.push_back({name_of(opened.head), opened.line, line_ - opened.line + 1});
    if (opened.scope == Scope::enclosing || (opened.scope == Scope::function && !initializer)) head_.clear();
    if (opened.scope != Scope::enclosing) first_ = opened.line;
  }

  const std::string& code_;
  std::vector<Open> open_;
  std::vector<Function> found_;
  std::string head_;
  int line_ = 1, first_ = 1, parens_ = 0;
};

std::string blanked(const std::string& text, bool literals) {
  const std::vector<Part> parts = parts_of(text);
  std::string code = text;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool gone = parts[i] == Part::comment || (literals && parts[i] == Part::literal);
    if (gone && text[i] != '\n') code[i] = ' ';
  }
  return code;
}

}  // namespace

std::vector<SourceFile> read_sources(const std::vector<std::string>& folders, const std::vector<std::string>& endings) {
  std::vector<SourceFile> files;
  const fs::path root = FORETOKEN_SOURCE_DIR;
  for (const std::string& folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const fs::path& path = entry.path();
      const auto fits = [&](const std::string& end) { return path.extension() == end || path.filename() == end; };
      if (!entry.is_regular_file() || std::ranges::none_of(endings, fits)) continue;
      const std::string name = fs::relative(path, root).generic_string();
      files.push_back({name, read_source(name)});
    }
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

std::string read_source(const std::string& path) {
  std::ifstream file(fs::path(FORETOKEN_SOURCE_DIR) / path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string code_only(const std::string& text) {
  std::string code = blanked(text, true);
  blank_preprocessor(code);
  return code;
}

std::string without_comments(const std::string& text) { return blanked(text, false); }

std::vector<Function> functions_of(const std::string& text) {
  // A macro that stands alone, without a semicolon, is no head of the function after it.
  static const std::regex alone(R"re(\nNLOHMANN_[A-Z_]+\([^)\n]*\)(?=\n))re");
  return FunctionFinder(std::regex_replace(code_only(text), alone, "\n")).run();
}

}  // namespace foretoken::test
