// Prompts, from any JSONL: one object a line with `prompt`, `turns` (the first is taken), `question` or `text`, and a
// `category` where there is one. Spec-Bench, MT-bench and HumanEval as they are.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace foretoken {

struct Prompt {
  int number = 0;  // of the line among the prompts of the file, from 0
  std::string text;
  std::string category;  // empty: none
};

// All prompts of a file; a malformed line is an Error with its number.
std::vector<Prompt> read_prompts(const std::filesystem::path& file);
// Those of the given categories (empty: all), at most `limit` (0: all), taken in turn from every category so that each
// has its share; in the order of the file. An unknown category is an Error that lists the known ones.
std::vector<Prompt> choose_prompts(const std::vector<Prompt>& all, const std::vector<std::string>& categories,
                                   int limit);

// `path` as given, else below `beside`, else below the project's own folder; the first that exists, or as given.
std::filesystem::path locate(const std::string& path, const std::filesystem::path& beside = {});

}  // namespace foretoken
