// Suffix arrays of sequences of integers, by induced sorting: Nong, Zhang, Chan 2009 (SA-IS, "Two Efficient Algorithms
// for Linear Time Suffix Array Construction"). libdivsufsort sorts bytes only, and SDSL is under the GPL. This module
// must not know what the integers mean.
#pragma once
#include <cstdint>
#include <span>

namespace foretoken {

// Writes to `order` where the suffixes of `symbols` begin, in ascending order; a suffix that is the beginning of
// another comes before it. Symbols are 0 to `kinds` - 1, at most 2^31 - 1 of them, and `order` has as many places.
// Time and memory are linear: up to 16 bytes a symbol besides both, and 8 for each of the `kinds`.
void sort_suffixes(std::span<const std::int32_t> symbols, int kinds, std::span<std::int32_t> order);

}  // namespace foretoken
