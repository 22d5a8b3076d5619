// The names that a user may write in one place, and the sentence about a name that is not among them. This module must
// not know what the names stand for.
#pragma once
#include <string>
#include <vector>

namespace foretoken {

// The known name nearest to `name` by edit distance, or "" where none is near.
std::string nearest(const std::string& name, const std::vector<std::string>& known);
// " (did you mean 'NEAREST'?)", or "" where no known name is near.
std::string suggestion(const std::string& name, const std::vector<std::string>& known);
// The names of a table's entries (`name` of each), in its order.
template <class Table> std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& entry : table) names.emplace_back(entry.name);
  return names;
}
// "a, b, c".
std::string listed(const std::vector<std::string>& names);

// "unknown WHAT 'NAME' (did you mean 'NEAREST'?); known: a, b, c".
[[noreturn]] void unknown_name(const std::string& what, const std::string& name, const std::vector<std::string>& known);
// "OWNER has no option 'NAME' (did you mean 'NEAREST'?); its options: a, b, c", unless `name` is known.
void expect_option(const std::string& owner, const std::string& name, const std::vector<std::string>& known);

}  // namespace foretoken
