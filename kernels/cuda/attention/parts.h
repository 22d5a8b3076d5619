// Which rows of a layout go into one call of an attention kernel. This header must not know kernels.
#pragma once
#include <vector>

#include "kernels/layout.h"

namespace foretoken {

// The rows of one call: those of consecutive block tables.
struct Part {
  int first_row = 0, rows = 0, first_sequence = 0, sequences = 0, deepest = 0, longest = 0, words = 0;
};
inline Part whole(const Layout& l) { return {0, l.rows, 0, l.sequences, l.deepest, l.longest, l.words}; }
// Rows without ancestors take the same routes whether or not a tree is in the batch, unless they are so few sequences
// beside the trees that a kernel of their own costs more than the prompt route.
inline std::vector<Part> parts_of(const Layout& l) {
  constexpr int kFewBeside = 8;
  const Layout::Straight& s = l.straight;
  const bool few = s.sequences * kFewBeside < l.sequences - s.sequences && s.rows * kFewBeside < l.rows - s.rows;
  if (l.words == 0 || s.sequences == 0 || few) return {whole(l)};
  std::vector<Part> parts{{0, s.rows, 0, s.sequences, s.deepest, s.longest, 0}};
  if (s.sequences < l.sequences)
    parts.push_back({s.rows, l.rows - s.rows, s.sequences, l.sequences - s.sequences, l.deepest, l.longest, l.words});
  return parts;
}

}  // namespace foretoken
