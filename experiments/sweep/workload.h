// Prompts, from JSON lines or a JSON list, plain or compressed (gzip, xz): objects with `prompt`, `question`, `text`,
// or `turns` or `messages` (a list: the user's side of a conversation), and an optional `category`. Published data sets
// are read as they are and told apart by their fields: Spec-Bench, MT-bench, SPEED-Bench, Arena-Hard, HumanEval, GSM8K
// and MBPP.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/session/request.h"

namespace foretoken {

// All prompts of a file; a malformed line, or one of an unknown layout, is an Error with its number.
std::vector<Prompt> read_prompts(const std::filesystem::path& file);
// Those of the given categories (empty: all), at most `limit` (0: all), taken in turn from the categories so that
// shares are even, behind the first `skip` that are taken so; in the order of the file. An unknown category is an Error
// that lists the known ones, and so is a `skip` that leaves none.
std::vector<Prompt> choose_prompts(const std::vector<Prompt>& all, const std::vector<std::string>& categories,
                                   int limit, int skip = 0);

// A number of tokens between half of `most` and all of it, drawn for this prompt, repeat and turn; the same in every
// run.
int drawn_length(int prompt, std::uint64_t repeat, int most, int turn = 0);

}  // namespace foretoken
