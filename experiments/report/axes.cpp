#include "experiments/report/axes.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>

#include "framework/model/model_choice.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

std::string last_part(const std::string& pointer) { return pointer.substr(pointer.rfind('/') + 1); }
std::string without_last(const std::string& pointer) { return pointer.substr(0, pointer.rfind('/')); }
bool within(const std::string& pointer, const std::string& parent) {
  return pointer == parent || pointer.starts_with(parent + "/");
}

int group_of(const std::string& pointer) {
  static const std::vector<std::string> kGroups = {"/target",   "/drafter", "/verifier",
                                                   "/sampling", "/engine",  "/workload"};
  const auto found = std::ranges::find_if(kGroups, [&](const std::string& group) { return within(pointer, group); });
  return within(pointer, "/policy") ? 100 : int(found - kGroups.begin());
}

// A name tells more than an option.
bool before(const std::string& a, const std::string& b) {
  const auto key = [](const std::string& p) { return std::tuple(group_of(p), last_part(p) != "name", p); };
  return key(a) < key(b);
}

// The run with each model as one text.
json with_models_told(json run) {
  for (const char* group : {"target", "drafter"})
    if (run.contains(group) && run[group].is_object() && run[group].contains("model")) {
      run[group]["model"] = told(run, "/" + std::string(group) + "/model");
      run[group].erase("inflate");
    }
  return run;
}

// The pointer of the list that an element is in, else the pointer itself: a list is one value.
std::string whole(std::string pointer) {
  while (!pointer.empty() && last_part(pointer).find_first_not_of("0123456789") == std::string::npos)
    pointer = without_last(pointer);
  return pointer;
}

// Pointers of leaves and lists that differ between runs, in order.
std::vector<std::string> differing(const std::vector<json>& runs) {
  std::map<std::string, std::pair<json, std::size_t>> first;  // its first value; how many runs have the same
  for (const json& run : runs) {
    const json of = with_models_told(run), leaves = of.flatten();
    std::map<std::string, json> values;
    for (const auto& leaf : leaves.items()) values[whole(leaf.key())] = of[json::json_pointer(whole(leaf.key()))];
    for (const auto& [pointer, value] : values) {
      auto& [known, count] = first.try_emplace(pointer, value, 0).first->second;
      if (known == value) ++count;
    }
  }
  std::vector<std::string> found;
  for (const auto& [pointer, seen] : first)
    if (seen.second < runs.size() && !within(pointer, "/measure")) found.push_back(pointer);
  std::ranges::sort(found, before);
  return found;
}

// Runs fall into classes of those that look alike so far; a pointer that splits one is worth a column.
class Classes {
 public:
  explicit Classes(const std::vector<json>& runs) : runs_(runs), class_(runs.size(), 0) {}

  bool split(const std::string& pointer) {
    std::map<std::pair<int, std::string>, int> next;
    std::vector<int> refined;
    for (std::size_t i = 0; i < runs_.size(); ++i)
      refined.push_back(next.try_emplace({class_[i], told(runs_[i], pointer).dump()}, int(next.size())).first->second);
    const bool more = int(next.size()) > count_;
    count_ = int(next.size());
    class_ = std::move(refined);
    return more;
  }

 private:
  const std::vector<json>& runs_;
  std::vector<int> class_;
  int count_ = 1;
};

std::vector<std::string> choose(const std::vector<json>& runs, const std::vector<std::string>& named) {
  const std::vector<std::string> candidates = differing(runs);
  const auto is_axis = [&](const std::string& p) {  // the name of a component is always shown
    return last_part(p) == "name" || std::ranges::find(named, p) != named.end();
  };
  const auto in_axis = [&](const std::string& p) {
    return std::ranges::any_of(named, [&](const std::string& n) { return within(p, n); });
  };
  std::vector<std::string> chosen;
  Classes classes(runs);
  for (int pass = 0; pass < 3; ++pass)
    for (const std::string& pointer : candidates) {
      if ((pass == 0) != is_axis(pointer) || (pass == 1) != (in_axis(pointer) && !is_axis(pointer))) continue;
      if (classes.split(pointer) || pass == 0) chosen.push_back(pointer);
    }
  if (chosen.empty()) chosen.push_back("/drafter/name");
  std::ranges::sort(chosen, before);
  return chosen;
}

std::string title_of(const std::string& pointer) {
  const std::string last = last_part(pointer), parent = last_part(without_last(pointer));
  if (last == "temperature") return "T";
  return last == "name" && !parent.empty() ? parent : last;
}

}  // namespace

json told(const json& run, const std::string& pointer) {
  const json::json_pointer place(pointer);
  if (!run.contains(place)) return json();
  const json& value = run[place];
  if (!pointer.ends_with("/model")) return value;
  try {
    const ModelChoice choice =
        ModelChoice::read(value, run[json::json_pointer(without_last(pointer))].value("inflate", json()));
    return choice.text() + (choice.dtype == "auto" ? "" : " in " + choice.dtype) +
           (choice.head_dtype == "auto" ? "" : ", head in " + choice.head_dtype) +
           (choice.kv_dtype == "target" ? "" : ", cache in " + choice.kv_dtype);
  } catch (const Error&) {  // no model: as it stands
    return value;
  }
}

Axes::Axes(const std::vector<json>& runs, const std::vector<std::string>& named) {
  std::map<std::string, int> titles;
  for (const std::string& pointer : choose(runs, named)) {
    Axis axis{pointer, title_of(pointer), true};
    std::vector<json> values;
    for (const json& run : runs) {
      const json value = told(run, pointer);
      axis.numeric &= value.is_number() || value.is_null();
      if (std::ranges::find(values, value) == values.end()) values.push_back(value);
    }
    ++titles[axis.title];
    columns_.push_back(axis);
    values_.push_back(std::move(values));
  }
  for (Axis& axis : columns_)
    if (titles[axis.title] > 1) axis.title = last_part(without_last(axis.pointer)) + "/" + last_part(axis.pointer);
}

std::vector<Column> Axes::table_columns() const {
  std::vector<Column> found;
  for (const Axis& axis : columns_) {
    std::string name = axis.pointer.substr(1);
    std::ranges::replace(name, '/', '.');
    found.push_back({axis.title, name, axis.title == "T" ? "temperature" : "",
                     axis.numeric ? Column::Kind::number : Column::Kind::text});
  }
  return found;
}

Cell Axes::cell(std::size_t axis, const json& run) const {
  const json value = told(run, columns_[axis].pointer);
  if (value.is_null()) return Cell::of("-");
  if (value.is_number()) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.10g", value.get<double>());
    return Cell::of(digits);
  }
  if (!value.is_string()) return Cell::of(value.dump());
  // A path is told by its last part, where that is enough.
  const std::string text = value, tail = last_part(text);
  const auto ends_alike = [&](const json& other) { return other.is_string() && last_part(other) == tail; };
  return Cell::of(!tail.empty() && std::ranges::count_if(values_[axis], ends_alike) <= 1 ? tail : text);
}

std::vector<Cell> Axes::cells(const json& run) const {
  std::vector<Cell> found;
  for (std::size_t i = 0; i < columns_.size(); ++i) found.push_back(cell(i, run));
  return found;
}

std::string Axes::label(const json& run) const {
  std::string found;
  for (std::size_t i = 0; i < columns_.size(); ++i)
    found += (i ? ", " : "") + columns_[i].title + " " + cell(i, run).shown();
  return found;
}

std::vector<std::size_t> Axes::order(const std::vector<json>& runs) const {
  const auto rank = [&](std::size_t axis, const json& run) {
    const json value = told(run, columns_[axis].pointer);
    if (columns_[axis].numeric) return value.is_number() ? value.get<double>() : -1e300;
    return double(std::ranges::find(values_[axis], value) - values_[axis].begin());
  };
  std::vector<std::vector<double>> keys;
  for (const json& run : runs) {
    keys.emplace_back();
    for (std::size_t i = 0; i < columns_.size(); ++i) keys.back().push_back(rank(i, run));
  }
  std::vector<std::size_t> places(runs.size());
  std::iota(places.begin(), places.end(), 0);
  std::ranges::stable_sort(places, {}, [&](std::size_t i) { return keys[i]; });
  return places;
}

std::vector<std::size_t> Axes::of_policy() const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (within(columns_[i].pointer, "/policy")) found.push_back(i);
  return found;
}

std::vector<std::size_t> Axes::outside_policy() const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (!within(columns_[i].pointer, "/policy")) found.push_back(i);
  return found;
}

bool Axes::equal(const json& a, const json& b, const std::vector<std::size_t>& axes) const {
  return std::ranges::all_of(
      axes, [&](std::size_t i) { return told(a, columns_[i].pointer) == told(b, columns_[i].pointer); });
}

}  // namespace foretoken
