#include <algorithm>
#include <cstdio>

#include "experiments/report/axes.h"
#include "framework/model/model_choice.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

const std::vector<std::string> kComponents = {"/drafter", "/verifier", "/policy"},
                               kColumnsOfPolicy = {"/policy/length", "/policy/nodes"};

bool contains(const std::vector<std::string>& texts, const std::string& text) {
  return std::ranges::find(texts, text) != texts.end();
}

bool is_component(const json& value) {
  return value.is_object() && value.contains("name") && value["name"].is_string();
}

// The components that an option holds: itself, or those of a list.
std::vector<json> held_components(const json& value) {
  if (is_component(value)) return {value};
  if (!value.is_array() || !std::ranges::all_of(value, is_component)) return {};
  return {value.begin(), value.end()};
}

std::string pointer_of(const std::string& option, const json& value, std::size_t i) {
  return value.is_array() ? option + "/" + std::to_string(i) : option;
}

// A text that could be read as something else is quoted.
std::string option_text(const json& value, const std::vector<json>& others) {
  if (value.is_array() && std::ranges::all_of(value, [](const json& v) { return v.is_number(); })) {
    std::string found;
    for (const json& number : value) found += (found.empty() ? "" : " ") + number.dump();
    return found.empty() ? "[]" : found;
  }
  if (value.is_object() && value.size() == 1) return option_text(value.front(), {});
  const std::string text = value_text(value, others);
  const bool plain = text.find_first_of(" ,()\"[]{}") == std::string::npos && !json::accept(text);
  return value.is_string() && !plain ? json(text).dump(-1, ' ', false, json::error_handler_t::replace) : text;
}

// Of models that are all made alike only what differs: "draft" and "draft-large", not "draft inflated to llama-3.2-1b".
std::string model_text(const json& model, std::vector<json> others) {
  const auto made = [](const json& v) {
    const std::string text = v.is_string() ? v.get<std::string>() : "";
    return text.substr(std::min(text.find(' '), text.size()));
  };
  const std::string ending = made(model);
  if (others.size() < 2 || ending.empty() ||
      !std::ranges::all_of(others, [&](const json& other) { return made(other) == ending; }))
    return value_text(model, others);
  const auto path = [&](const json& v) {
    const std::string text = v.get<std::string>();
    return json(text.substr(0, text.size() - ending.size()));
  };
  for (json& other : others) other = path(other);
  return value_text(path(model), others);
}

}  // namespace

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

json told(const json& run, const std::string& pointer) {
  const json::json_pointer place(pointer);
  if (!run.contains(place)) return json();
  const json& value = run[place];
  if (!pointer.ends_with("/model")) return value;
  try {
    const ModelChoice choice = ModelChoice::read(
        value, run[json::json_pointer(pointer.substr(0, pointer.rfind('/')))].value("inflate", json()));
    return choice.text() + (choice.dtype == "auto" ? "" : " in " + choice.dtype) +
           (choice.head_dtype == "auto" ? "" : ", head in " + choice.head_dtype) +
           (choice.kv_dtype == "target" ? "" : ", cache in " + choice.kv_dtype);
  } catch (const Error&) {  // no model: as it stands
    return value;
  }
}

std::string value_text(const json& value, const std::vector<json>& others) {
  if (value.is_number()) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.10g", value.get<double>());
    return digits;
  }
  if (!value.is_string()) return value.dump(-1, ' ', false, json::error_handler_t::replace);
  const std::string text = value, tail = last_part(text);
  const auto ends_alike = [&](const json& other) { return other.is_string() && last_part(other) == tail; };
  return !tail.empty() && std::ranges::count_if(others, ends_alike) <= 1 ? tail : text;
}

ComponentNames::ComponentNames(const std::vector<json>& runs, const std::vector<std::string>& apart) : apart_(apart) {
  apart_.insert(apart_.end(), kColumnsOfPolicy.begin(), kColumnsOfPolicy.end());
  for (const json& run : runs)
    for (const std::string& pointer : kComponents)
      if (const json component = run.value(json::json_pointer(pointer), json()); is_component(component))
        note(component, pointer, pointer);
}

bool ComponentNames::names(const std::string& pointer) { return contains(kComponents, pointer); }

bool ComponentNames::covers(const std::string& pointer) {
  return !contains(kColumnsOfPolicy, pointer) &&
         std::ranges::any_of(kComponents, [&](const std::string& c) { return pointer.starts_with(c + "/"); });
}

json ComponentNames::name(const json& run, const std::string& pointer) const {
  const json component = run.value(json::json_pointer(pointer), json());
  return is_component(component) ? json(text(component, pointer, pointer)) : component;
}

// f(key, value, pointer): options that are set, a model with what is made of it.
template <class F>
void ComponentNames::each_option(const json& component, const std::string& pointer, const F& f) const {
  for (const auto& [key, value] : component.items()) {
    const std::string at = pointer + "/" + key;
    if (key == "name" || value.is_null() || contains(apart_, at) || (key == "inflate" && component.contains("model")))
      continue;
    f(key, key == "model" ? told(component, "/model") : value, at);
  }
}

void ComponentNames::note(const json& component, const std::string& outer, const std::string& pointer) {
  const std::string place = outer + ":" + component["name"].get<std::string>();
  ++count_[place];
  each_option(component, pointer, [&](const std::string& key, const json& value, const std::string& at) {
    Option& option = options_[place][key];
    ++option.count;
    if (std::ranges::find(option.values, value) == option.values.end()) option.values.push_back(value);
    const std::vector<json> held = held_components(value);
    for (std::size_t i = 0; i < held.size(); ++i) note(held[i], place + "/" + key, pointer_of(at, value, i));
  });
}

bool ComponentNames::differs(const std::string& place, const std::string& key) const {
  const auto options = options_.find(place);
  if (options == options_.end() || !options->second.contains(key)) return false;
  const Option& option = options->second.at(key);
  return option.values.size() > 1 || option.count < count_.at(place);
}

std::string ComponentNames::text(const json& component, const std::string& outer, const std::string& pointer) const {
  const std::string name = component["name"], place = outer + ":" + name;
  std::string held, model, others, flags;  // in this order
  const auto add = [](std::string& to, const std::string& part) { to += ", " + part; };
  each_option(component, pointer, [&](const std::string& key, const json& value, const std::string& at) {
    const std::vector<json> parts = held_components(value);
    const bool drafters = !parts.empty() && key != "verifier" && key != "policy";
    if (!drafters && !differs(place, key)) return;
    std::string list;
    for (std::size_t i = 0; i < parts.size(); ++i)
      list += (i ? ", " : "") + text(parts[i], place + "/" + key, pointer_of(at, value, i));
    if (!parts.empty()) return add(held, drafters ? list : key + " " + list);
    const std::vector<json>& known = options_.at(place).at(key).values;
    if (key == "model") return add(model, model_text(value, known));
    if (value.is_boolean()) return add(flags, value.get<bool>() ? key : "no " + key);
    add(others, key + " " + option_text(value, known));
  });
  const std::string all = held + model + others + flags;
  return all.empty() ? name : name + " (" + all.substr(2) + ")";
}

}  // namespace foretoken
