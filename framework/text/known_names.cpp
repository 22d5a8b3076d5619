#include "framework/text/known_names.h"

#include <algorithm>
#include <numeric>

#include "kernels/error.h"

namespace foretoken {
namespace {

int edit_distance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = int(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  std::string best;
  int least = std::max(2, int(name.size()) / 3) + 1;
  for (const auto& k : known)
    if (const int d = edit_distance(name, k); d < least) least = d, best = k;
  return best;
}

std::string suggestion(const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest(name, known);
  return near.empty() ? "" : " (did you mean '" + near + "'?)";
}

std::string listed(const std::vector<std::string>& names) {
  std::string s;
  for (const auto& name : names) s += (s.empty() ? "" : ", ") + name;
  return s;
}

void unknown_name(const std::string& what, const std::string& name, const std::vector<std::string>& known) {
  throw Error("unknown " + what + " '" + name + "'" + suggestion(name, known) + "; known: " + listed(known));
}

void expect_option(const std::string& owner, const std::string& name, const std::vector<std::string>& known) {
  if (std::ranges::find(known, name) != known.end()) return;
  throw Error(owner + " has no option '" + name + "'" + suggestion(name, known) + "; its options: " + listed(known));
}

}  // namespace foretoken
