#include "experiments/report/axes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace foretoken {
namespace {

using nlohmann::json;

std::string without_last(const std::string& pointer) { return pointer.substr(0, pointer.rfind('/')); }
int rank_of(const std::string& pointer) {
  static const std::vector<std::string> kGroups = {"/target",   "/drafter", "/verifier",
                                                   "/sampling", "/engine",  "/workload"};
  const auto found = std::ranges::find_if(kGroups, [&](const std::string& group) { return within(pointer, group); });
  return within(pointer, "/policy") ? 100 : int(found - kGroups.begin());
}

// A name tells more than an option.
bool before(const std::string& a, const std::string& b) {
  const auto key = [](const std::string& p) { return std::tuple(rank_of(p), last_part(p) != "name", p); };
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

json value_of(const json& run, const std::string& pointer, const ComponentNames& names) {
  return ComponentNames::names(pointer) ? names.name(run, pointer) : told(run, pointer);
}

// Runs fall into classes of those that look alike so far; a pointer that splits one is worth a column.
class Classes {
 public:
  Classes(const std::vector<json>& runs, const ComponentNames& names)
      : runs_(runs), names_(names), class_(runs.size(), 0) {}

  bool split(const std::string& pointer) {
    std::map<std::pair<int, std::string>, int> next;
    std::vector<int> refined;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const std::string value = value_of(runs_[i], pointer, names_).dump(-1, ' ', true, json::error_handler_t::replace);
      refined.push_back(next.try_emplace({class_[i], value}, int(next.size())).first->second);
    }
    const bool more = int(next.size()) > count_;
    count_ = int(next.size());
    class_ = std::move(refined);
    return more;
  }

 private:
  const std::vector<json>& runs_;
  const ComponentNames& names_;
  std::vector<int> class_;
  int count_ = 1;
};

// Components whose names differ, and other fields that differ.
std::vector<std::string> candidates_of(const std::vector<json>& runs, const ComponentNames& names) {
  std::vector<std::string> found;
  for (const std::string& pointer : differing(runs))
    if (!ComponentNames::covers(pointer)) found.push_back(pointer);
  for (const char* component : {"/drafter", "/verifier", "/policy"})
    if (std::ranges::any_of(
            runs, [&](const json& run) { return names.name(run, component) != names.name(runs[0], component); }))
      found.push_back(component);
  std::ranges::sort(found, before);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::vector<std::string> choose(const std::vector<json>& runs, const std::vector<std::string>& named,
                                const ComponentNames& names) {
  const std::vector<std::string> candidates = candidates_of(runs, names);
  const auto is_named = [&](const std::string& p) {
    return ComponentNames::names(p) || std::ranges::find(named, p) != named.end();
  };
  const auto pass_of = [&](const std::string& p) {
    if (is_named(p)) return within(p, "/workload") ? 1 : 0;
    return std::ranges::any_of(named, [&](const std::string& n) { return within(p, n); }) ? 2 : 3;
  };
  std::vector<std::string> chosen;
  Classes classes(runs, names);
  for (int pass = 0; pass < 4; ++pass)
    for (const std::string& pointer : candidates)
      if (pass_of(pointer) == pass && (classes.split(pointer) || pass == 0)) chosen.push_back(pointer);
  if (chosen.empty()) chosen.push_back("/drafter");
  std::ranges::sort(chosen, before);
  return chosen;
}

bool is_method(const std::string& group) {
  return group == "drafter" || group == "policy" || group == "verifier" || group == "plugins";
}

std::string title_of(const std::string& pointer) {
  const std::string last = last_part(pointer), parent = last_part(without_last(pointer));
  if (last == "temperature") return "T";
  return last == "name" && !parent.empty() ? parent : last;
}

}  // namespace

bool within(const std::string& pointer, const std::string& parent) {
  return pointer == parent || pointer.starts_with(parent + "/");
}

std::string group_of(const std::string& pointer) { return pointer.substr(1, pointer.find('/', 1) - 1); }

Axes::Axes(const std::vector<json>& runs, const std::vector<std::string>& named, ComponentNames names)
    : Axes(runs, names, choose(runs, named, names)) {}

Axes Axes::of_pointers(const std::vector<json>& runs, const std::vector<std::string>& pointers) {
  return Axes(runs, ComponentNames(runs), pointers);
}

Axes::Axes(const std::vector<json>& runs, ComponentNames names, const std::vector<std::string>& pointers)
    : names_(std::move(names)) {
  std::map<std::string, int> titles;
  for (const std::string& pointer : pointers) {
    Axis axis{pointer, title_of(pointer), true};
    std::vector<json> values;
    for (const json& run : runs) {
      const json value = value_of(run, pointer, names_);
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

json Axes::value(std::size_t axis, const json& run) const { return value_of(run, columns_[axis].pointer, names_); }

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
  const json found = value(axis, run);
  if (found.is_null()) return Cell::of("-");
  if (found.is_string() && ComponentNames::names(columns_[axis].pointer)) return Cell::of(found.get<std::string>());
  return Cell::of(value_text(found, values_[axis]));
}

std::vector<Cell> Axes::cells(const json& run) const {
  std::vector<Cell> found;
  for (const std::size_t i : all()) found.push_back(cell(i, run));
  return found;
}

std::string Axes::label(const json& run, const std::vector<std::size_t>& axes) const {
  std::string found, unknown;
  for (const std::size_t i : axes) {
    const bool named = ComponentNames::names(columns_[i].pointer);
    std::string& text = value(i, run).is_null() ? unknown : found;
    text += (text.empty() ? "" : ", ") + (named ? "" : columns_[i].title + " ") + cell(i, run).shown();
  }
  return found.empty() ? unknown : found;
}

std::vector<std::size_t> Axes::order(const std::vector<json>& runs) const {
  const auto rank = [&](std::size_t axis, const json& run) {
    const json found = value(axis, run);
    if (columns_[axis].numeric) return found.is_number() ? found.get<double>() : -1e300;
    return double(std::ranges::find(values_[axis], found) - values_[axis].begin());
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

template <class Wanted> std::vector<std::size_t> Axes::those(const Wanted& wanted) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (wanted(group_of(columns_[i].pointer))) found.push_back(i);
  return found;
}

std::vector<std::size_t> Axes::all() const {
  return those([](const std::string&) { return true; });
}

std::vector<std::size_t> Axes::of_policy() const {
  return those([](const std::string& group) { return group == "policy"; });
}

std::vector<std::size_t> Axes::outside_policy() const {
  return those([](const std::string& group) { return group != "policy"; });
}

std::vector<std::size_t> Axes::methods() const { return those(is_method); }

std::vector<std::size_t> Axes::conditions() const {
  return those([](const std::string& group) { return !is_method(group); });
}

}  // namespace foretoken
