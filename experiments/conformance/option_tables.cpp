#include "experiments/conformance/configurations.h"
#include "experiments/conformance/options.h"
#include "experiments/conformance/scripted_drafter.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;

struct Column {
  std::string title;
  json drafter;
};

// One config of every drafter, and trees of random shapes.
std::vector<Column> columns(const Registries& registries) {
  std::vector<Column> all;
  for (const json& config : configurations(registries.drafters))
    if (all.empty() || all.back().drafter["name"] != config["name"])
      all.push_back({"`" + config["name"].get<std::string>() + "`", config});
  for (const char* kinds : {"certain", "independent"})
    all.push_back({std::string("trees, ") + kinds, random_tree(3, kinds)});
  return all;
}

std::string line(const std::vector<std::string>& cells) {
  std::string s = "|";
  for (const std::string& cell : cells) s += " " + cell + " |";
  return s + "\n";
}

// The number of a message; a new message is appended to `notes`.
std::string note(const std::string& sentence, std::vector<std::string>& notes) {
  for (std::size_t i = 0; i < notes.size(); ++i)
    if (notes[i] == sentence) return "refused (" + std::to_string(i + 1) + ")";
  notes.push_back(sentence);
  return "refused (" + std::to_string(notes.size()) + ")";
}

std::string cell(const Registries& registries, const Column& column, const json& verifier, const SamplingOption& option,
                 std::vector<std::string>& notes) {
  if (!sound(registries, column.drafter, verifier)) return "unsound pair";
  const Subject subject{registries, {column.drafter, {{"name", "fixed"}, {"length", 2}}, verifier}};
  const OptionFinding f = exact_or_refused(subject, option, 500);
  if (!f.holds) throw Error(f.what);
  return f.refusal.empty() ? "exact" : note(f.refusal, notes);
}

}  // namespace

std::string option_tables(const Registries& plain) {
  const Registries registries = with_scripted(plain);
  const std::vector<Column> drafters = columns(plain);
  std::vector<std::string> notes;
  std::string text;
  for (const std::string& name : plain.verifiers.names()) {
    const json verifier = plain.verifiers.complete({{"name", name}});
    const Soundness soundness = soundness_of(plain, verifier);
    text += "## `" + name + "`\n\n";
    if (!soundness.exact()) {
      text += "Lossy: every option is part of the distribution that it refers to.\n\n";
      continue;
    }
    std::vector<std::string> titles{"option"};
    for (const Column& c : drafters) titles.push_back(c.title);
    text += line(titles) + line(std::vector<std::string>(titles.size(), "---"));
    for (const SamplingOption& option : sampling_options()) {
      std::vector<std::string> cells{option.text};
      for (const Column& c : drafters) cells.push_back(cell(registries, c, verifier, option, notes));
      text += line(cells);
    }
    text += "\n";
  }
  for (std::size_t i = 0; i < notes.size(); ++i) text += std::to_string(i + 1) + ". " + notes[i] + "\n";
  return text;
}

}  // namespace foretoken::conformance
