#include "experiments/sweep/workload.h"

#include <algorithm>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "foretoken_version.h"
#include "framework/text/json_file.h"
#include "framework/text/regular_file.h"
#include "kernels/error.h"
#include "kernels/philox.h"

namespace foretoken {

using nlohmann::json;

namespace {

// The turns of a line; one where it is no conversation.
std::vector<std::string> turns_of(const json& line, const std::string& where) {
  for (const char* key : {"prompt", "question", "text"})
    if (line.contains(key) && line[key].is_string()) return {line[key]};
  const auto is_string = [](const json& turn) { return turn.is_string(); };
  if (line.contains("turns") && line["turns"].is_array() && !line["turns"].empty() &&
      std::ranges::all_of(line["turns"], is_string))
    return line["turns"];
  throw Error(where +
              ": no prompt; a line needs a string 'prompt' (or 'question', 'text') or a list of strings 'turns'");
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& file) {
  std::istringstream in(
      read_bytes(file, "the file of prompts '" + file.string() + "'", "name a JSONL file with one prompt a line"));
  std::vector<Prompt> prompts;
  std::string text;
  for (int number = 1; std::getline(in, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = file.string() + ":" + std::to_string(number);
    const json line = parse_json(text, where);
    if (!line.is_object()) throw Error(where + ": a prompt must be a JSON object, not " + shown(line));
    std::vector<std::string> turns = turns_of(line, where);
    if (std::ranges::find(turns, "") != turns.end()) throw Error(where + ": the prompt is empty");
    const bool named = line.contains("category") && line["category"].is_string();
    prompts.push_back({int(prompts.size()),
                       std::move(turns.front()),
                       named ? line["category"].get<std::string>() : "",
                       {turns.begin() + 1, turns.end()}});
  }
  if (prompts.empty()) throw Error("the file '" + file.string() + "' holds no prompts");
  return prompts;
}

std::vector<Prompt> choose_prompts(const std::vector<Prompt>& all, const std::vector<std::string>& categories,
                                   int limit, int skip) {
  std::map<std::string, std::vector<const Prompt*>> by_category;
  for (const Prompt& p : all) by_category[p.category].push_back(&p);
  for (const auto& c : categories)
    if (!by_category.contains(c)) {
      std::string known;
      for (const auto& [name, list] : by_category) known += (known.empty() ? "" : ", ") + name;
      throw Error("no prompt has the category '" + c + "'; known: " + known);
    }
  if (!categories.empty())
    std::erase_if(by_category,
                  [&](const auto& c) { return std::ranges::find(categories, c.first) == categories.end(); });
  std::vector<const Prompt*> chosen;
  for (std::size_t round = 0, before = 1; before != chosen.size() || round == 0; ++round) {
    before = chosen.size();
    for (const auto& [name, list] : by_category)
      if (round < list.size() && (limit == 0 || int(chosen.size()) < skip + limit)) chosen.push_back(list[round]);
  }
  if (int(chosen.size()) <= skip)
    throw Error("'/workload/skip' leaves out " + std::to_string(skip) + " prompts, and there are " +
                std::to_string(chosen.size()) + "; skip fewer, or name a file with more");
  chosen.erase(chosen.begin(), chosen.begin() + skip);
  std::ranges::sort(chosen, {}, [](const Prompt* p) { return p->number; });
  std::vector<Prompt> out;
  for (const Prompt* p : chosen) out.push_back(*p);
  return out;
}

std::uint64_t stream_of(int prompt, std::uint64_t sample, std::uint64_t part) {
  constexpr int kPromptBits = 32, kSampleBits = 20, kPartBits = 64 - kPromptBits - kSampleBits;
  const auto expect = [](std::uint64_t value, int bits, const char* what, const char* remedy) {
    if (value >> bits == 0) return;
    throw Error("a " + std::string(what) + " is number " + std::to_string(value) + ", but draws have names for " +
                std::to_string(std::uint64_t(1) << bits) + ": it would meet the draws of another; " + remedy);
  };
  expect(sample, kSampleBits, "sample of a prompt", "lower '/sampling/samples' or '/workload/repeats'");
  expect(part, kPartBits, "turn of a conversation, or pass of a soak test over its prompts",
         "lower '/workload/turns', or give the soak test fewer requests or more prompts");
  return part << (kPromptBits + kSampleBits) | sample << kPromptBits | std::uint32_t(prompt);
}

int drawn_length(int prompt, std::uint64_t repeat, int most, int turn) {
  const std::uint32_t word =
      philox4x32_10(std::uint32_t(prompt), std::uint32_t(repeat), std::uint32_t(turn), 0, 0x6c656e67u, 0x7468735fu)
          .word[0];
  const int least = (most + 1) / 2;
  return least + int(std::uint64_t(word) * std::uint64_t(most - least + 1) >> 32);
}

std::filesystem::path locate(const std::string& path, const std::filesystem::path& beside) {
  std::error_code ignored;
  for (const auto& base : {std::filesystem::path(), beside, std::filesystem::path(kSourceDirectory)})
    if (const auto candidate = base / path; std::filesystem::exists(candidate, ignored)) return candidate;
  return path;
}

}  // namespace foretoken
