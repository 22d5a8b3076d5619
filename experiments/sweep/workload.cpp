#include "experiments/sweep/workload.h"

#include <algorithm>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "experiments/report/compressed.h"
#include "framework/text/json_file.h"
#include "framework/text/regular_file.h"
#include "kernels/error.h"
#include "kernels/philox.h"

namespace foretoken {

using nlohmann::json;

namespace {

// What SPEED-Bench publishes in the place of texts that are to be fetched from other data sets.
constexpr const char* kNotFetched = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE";

bool has_text(const json& line, const char* key) { return line.contains(key) && line[key].is_string(); }

// Turns as strings, or as objects with the text under "content"; empty where they are something else.
std::vector<std::string> texts_of(const json& turns) {
  std::vector<std::string> texts;
  if (!turns.is_array()) return texts;
  for (const json& turn : turns) {
    const json& text = turn.is_object() && turn.contains("content") ? turn["content"] : turn;
    const bool asked = !turn.is_object() || turn.value("role", json("user")) == "user";
    if (!text.is_string() || !asked) return {};
    texts.push_back(text);
  }
  return texts;
}

// What a line holds by its fields, in the order in which they are tried; `name` where the layout has no categories.
struct PromptLayout {
  const char *field, *beside;  // the prompt or its turns, and a field that tells the layout from others; null: none
  const char* name;            // of the data set; empty: of no data set by that name
  const char* mark = "";       // what the text of the field beside it has
  bool fits(const json& line) const {
    if (!line.contains(field) || (beside && !line.contains(beside))) return false;
    return !*mark || (line[beside].is_string() && line[beside].get_ref<const std::string&>().find(mark) != npos);
  }
  static constexpr std::size_t npos = std::string::npos;
};
constexpr PromptLayout kLayouts[] = {{"prompt", "test_list", "MBPP"},
                                     {"text", "test_list", "MBPP"},
                                     {"prompt", "task_id", "HumanEval", "HumanEval/"},
                                     {"prompt", nullptr, ""},
                                     {"question", "answer", "GSM8K", "####"},
                                     {"question", nullptr, ""},
                                     {"text", nullptr, ""},
                                     {"turns", nullptr, ""},
                                     {"messages", nullptr, ""}};

// The turns of a line, the first as the prompt.
Prompt prompt_of(const json& line, const std::string& where) {
  for (const PromptLayout& layout : kLayouts) {
    if (!layout.fits(line)) continue;
    const json& field = line[layout.field];
    std::vector<std::string> turns = field.is_string() ? std::vector<std::string>{field} : texts_of(field);
    if (turns.empty()) continue;
    if (std::ranges::find(turns, "") != turns.end()) throw Error(where + ": the prompt is empty");
    if (std::ranges::any_of(turns, [](const std::string& turn) { return turn.find(kNotFetched) != turn.npos; }))
      throw Error(where +
                  ": the text is not there yet, as SPEED-Bench is published; fetch it with the data set's own " +
                  "script, which writes JSON lines with 'messages'");
    Prompt prompt{0, std::move(turns.front()), layout.name, {turns.begin() + 1, turns.end()}};
    for (const char* key : {"cluster", "category"})
      if (has_text(line, key)) prompt.category = line[key];
    return prompt;
  }
  throw Error(where +
              ": no prompt; the layouts that are known are a string 'prompt', 'question' or 'text' of a file of your "
              "own, a list 'turns' of strings (Spec-Bench, MT-bench, SPEED-Bench) or of objects with 'content' "
              "(Arena-Hard), a list 'messages' of the role 'user' (SPEED-Bench with its texts fetched), 'prompt' with "
              "'task_id' (HumanEval) or with 'uid' (Arena-Hard 2), 'question' with 'answer' (GSM8K), and 'text' or "
              "'prompt' with 'test_list' (MBPP)");
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& file) {
  const std::string who = "the file of prompts '" + file.string() + "'";
  std::string bytes = read_bytes(file, who, "name a JSONL file with one prompt a line");
  if (is_compressed(bytes)) bytes = decompress(bytes, who);
  if (bytes.starts_with("PAR1"))
    throw Error(who +
                " is a parquet file; write it as JSON lines, as pandas does with to_json(FILE, orient='records', "
                "lines=True)");
  std::vector<Prompt> prompts;
  const auto add = [&](const json& line, const std::string& where) {
    if (!line.is_object()) throw Error(where + ": a prompt must be a JSON object, not " + shown(line));
    Prompt& prompt = prompts.emplace_back(prompt_of(line, where));
    prompt.number = int(prompts.size()) - 1;
  };
  constexpr const char* kBlank = " \t\r\n";
  if (const auto first = bytes.find_first_not_of(kBlank); first != bytes.npos && bytes[first] == '[') {
    for (const json& line : parse_json(bytes, file.string()))
      add(line, file.string() + ", entry " + std::to_string(prompts.size() + 1));
  } else {
    std::istringstream in(std::move(bytes));
    std::string text;
    for (int number = 1; std::getline(in, text); ++number) {
      const std::string where = file.string() + ":" + std::to_string(number);
      if (text.find_first_not_of(kBlank) != text.npos) add(parse_json(text, where), where);
    }
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

int drawn_length(int prompt, std::uint64_t repeat, int most, int turn) {
  const std::uint32_t word =
      philox4x32_10(std::uint32_t(prompt), std::uint32_t(repeat), std::uint32_t(turn), 0, 0x6c656e67u, 0x7468735fu)
          .word[0];
  const int least = (most + 1) / 2;
  return least + int(std::uint64_t(word) * std::uint64_t(most - least + 1) >> 32);
}

}  // namespace foretoken
