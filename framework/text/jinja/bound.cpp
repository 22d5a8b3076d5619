#include <algorithm>

#include "framework/text/jinja/builtins.h"

namespace foretoken::jinja {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace

Bound::Bound(std::string callee, std::string_view parameters, int required, Arguments arguments)
    : callee_(std::move(callee)) {
  if (parameters == "*") {
    all_ = std::move(arguments);
    return;
  }
  const std::vector<std::string> names = words_of(parameters);
  if (arguments.positional.size() > names.size())
    fail(callee_ + " takes at most " + std::to_string(names.size()) + " arguments");
  given_.resize(names.size());
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) given_[i] = std::move(arguments.positional[i]);
  for (auto& [name, value] : arguments.named) {
    const auto it = std::ranges::find(names, name);
    if (it == names.end()) fail(callee_ + " has no argument '" + name + "'");
    auto& place = given_[std::size_t(it - names.begin())];
    if (place) fail(callee_ + " gets the argument '" + name + "' twice");
    place = std::move(value);
  }
  for (int i = 0; i < required; ++i)
    if (!given_[std::size_t(i)])
      fail(callee_ + " needs the argument '" + names[std::size_t(i)].substr(names[std::size_t(i)][0] == '/') + "'");
}

std::int64_t Bound::whole(std::size_t i, std::int64_t otherwise) const {
  const Value* value = at(i);
  if (!value) return otherwise;
  if (value->is(Kind::undefined)) fail(value->reason());
  if (!value->is_whole()) fail(callee_ + " needs an integer, not a value of type '" + type_of(*value) + "'");
  return value->whole();
}

std::int64_t Bound::whole_or_none(std::size_t i, std::int64_t otherwise) const {
  return at(i) && at(i)->is(Kind::none) ? otherwise : whole(i, otherwise);
}

std::string Bound::text(std::size_t i, std::string otherwise) const {
  const Value* value = at(i);
  if (!value) return otherwise;
  if (value->is(Kind::undefined)) fail(value->reason());
  if (!value->is(Kind::string)) fail(callee_ + " needs a string, not a value of type '" + type_of(*value) + "'");
  return value->str();
}

bool Bound::flag(std::size_t i, bool otherwise) const { return at(i) ? truth(*at(i)) : otherwise; }

}  // namespace foretoken::jinja
