// Filters of lists and dicts.
#include <algorithm>

#include "framework/text/jinja/builtins.h"
#include "framework/text/jinja/item_key.h"
#include "framework/text/jinja/unicode.h"

namespace foretoken::jinja {
namespace {

Value length(Run& run, const Value& value, const Bound&) { return Value::integer(length_of(run, value)); }

Value first(Run& run, const Value& value, const Bound&) {
  Iterator iterator(run, value);
  Value item;
  return iterator.next(item) ? item : Value::undefined("there is no first item");
}

void expect_reversible(const Value& value) {
  if (value.is(Kind::generator) || value.is(Kind::loop) || !iterable(value))
    fail("a value of type '" + type_of(value) + "' cannot be reversed; make it a list first");
}

Value last(Run& run, const Value& value, const Bound&) {
  expect_reversible(value);
  const Items items = items_of(run, value);
  return items.empty() ? Value::undefined("there is no last item") : items.back();
}

Value list(Run& run, const Value& value, const Bound&) { return run.list(items_of(run, value)); }

Value reverse(Run& run, const Value& value, const Bound&) {
  Items items = items_of(run, value);
  std::ranges::reverse(items);
  if (value.is_text()) {
    std::string text;
    for (const Value& item : items) text += item.str();
    return run.text(std::move(text), value.kind());
  }
  return run.sequence(value.is(Kind::generator) ? Kind::list : Kind::generator, std::move(items));
}

Value join(Run& run, const Value& value, const Bound& given) {
  const std::string mark = given.at(0) ? str_of(run, *given.at(0)) : "";
  std::string text;
  bool begun = false;
  for (const Value& item : ItemKey(run, given.at(1), true).keys(items_of(run, value))) {
    const std::string one = (begun ? mark : "") + str_of(run, item);
    run.take(std::int64_t(one.size()));
    text += one, begun = true;
  }
  return run.text(std::move(text));
}

Value sum(Run& run, const Value& value, const Bound& given) {
  Value total = given.value(1, Value::integer(0));
  if (total.is_text()) fail("the filter 'sum' does not add texts; use 'join'");
  for (const Value& item : ItemKey(run, given.at(0), true).keys(items_of(run, value)))
    total = operated(run, "+", total, item);
  return total;
}

// Places of items in the order of their keys; equal ones keep theirs.
std::vector<std::size_t> order_of_keys(Run& run, const Items& keys, bool reverse) {
  std::vector<std::size_t> order(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return reverse ? less(run, keys[b], keys[a]) : less(run, keys[a], keys[b]);
  });
  return order;
}

Items in_order(const Items& items, const std::vector<std::size_t>& order) {
  Items sorted;
  for (const std::size_t i : order) sorted.push_back(items[i]);
  return sorted;
}

Value sort(Run& run, const Value& value, const Bound& given) {
  const Items items = items_of(run, value);
  Items keys;
  for (const Value& item : items) {
    Items parts;  // an attribute may be several, with commas
    for (const ItemKey& key : ItemKey::several(run, given.at(2), given.flag(1, false))) parts.push_back(key.of(item));
    keys.push_back(run.list(std::move(parts)));
  }
  return run.list(in_order(items, order_of_keys(run, keys, given.flag(0, false))));
}

Value dictsort(Run& run, const Value& value, const Bound& given) {
  const std::string by = given.text(1, "key");
  if (by != "key" && by != "value") fail("the filter 'dictsort' sorts by key or value, not by '" + by + "'");
  if (value.is(Kind::undefined)) fail(value.reason());
  if (!value.is(Kind::dict)) fail("the filter 'dictsort' needs a dict, not a value of type '" + type_of(value) + "'");
  const ItemKey key(run, nullptr, given.flag(0, false));
  Items pairs, keys;
  for (const auto& [name, item] : value.as<Map>().entries) {
    pairs.push_back(run.tuple({name, item}));
    keys.push_back(key.of(by == "key" ? name : item));
  }
  return run.list(in_order(pairs, order_of_keys(run, keys, given.flag(2, false))));
}

template <bool greatest> Value extreme(Run& run, const Value& value, const Bound& given) {
  const Items items = items_of(run, value);
  if (items.empty()) return Value::undefined("there is no item to choose from");
  const Items keys = ItemKey(run, given.at(1), given.flag(0, false)).keys(items);
  std::size_t best = 0;
  for (std::size_t i = 1; i < items.size(); ++i)
    if (greatest ? less(run, keys[best], keys[i]) : less(run, keys[i], keys[best])) best = i;
  return items[best];
}

Value unique(Run& run, const Value& value, const Bound& given) {
  const ItemKey key(run, given.at(1), given.flag(0, false));
  std::unordered_map<std::string, bool> seen;
  Items items;
  for (const Value& item : items_of(run, value))
    if (seen.emplace(key_of(run, key.of(item)), true).second) items.push_back(item);
  return run.sequence(Kind::generator, std::move(items));
}

Value groupby(Run& run, const Value& value, const Bound& given) {
  const bool exact = given.flag(2, false);
  const ItemKey key(run, given.at(0), exact, given.at(1)), shown(run, given.at(0), true, given.at(1));
  const Items items = items_of(run, value), keys = key.keys(items);
  const std::vector<std::size_t> order = order_of_keys(run, keys, false);
  Items groups;
  for (std::size_t at = 0; at < order.size();) {
    Items members;
    const std::size_t begin = at;
    for (; at < order.size() && equal(run, keys[order[at]], keys[order[begin]]); ++at)
      members.push_back(items[order[at]]);
    if (at == begin) ++at, members.push_back(items[order[begin]]);  // NaN
    const Value pair = run.tuple({shown.of(members[0]), run.list(members)});
    auto body = std::make_shared<Sequence>(pair.as<Sequence>());
    body->group = true;
    groups.push_back(Value::of(Kind::tuple, std::move(body)));
  }
  return run.list(std::move(groups));
}

Value batch(Run& run, const Value& value, const Bound& given) {
  const std::int64_t size = given.whole(0, 0);
  const Value* fill = given.at(1) && !given.at(1)->is(Kind::none) ? given.at(1) : nullptr;
  Items batches, batch;
  for (const Value& item : items_of(run, value)) {
    if (std::int64_t(batch.size()) == size) batches.push_back(run.list(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (fill && !batch.empty())
    for (; std::int64_t(batch.size()) < size; run.take(std::int64_t(sizeof(Value)))) batch.push_back(*fill);
  if (!batch.empty()) batches.push_back(run.list(std::move(batch)));
  return run.sequence(Kind::generator, std::move(batches));
}

Value slice(Run& run, const Value& value, const Bound& given) {
  const Items items = items_of(run, value);
  const std::int64_t count = given.whole(0, 0), size = std::int64_t(items.size());
  const Value* fill = given.at(1) && !given.at(1)->is(Kind::none) ? given.at(1) : nullptr;
  if (count == 0) fail("the filter 'slice' cannot make no slices");
  Items slices;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t end = begin + size / count + (i < size % count);
    Items one(items.begin() + std::ptrdiff_t(begin), items.begin() + std::ptrdiff_t(end));
    if (fill && i >= size % count) one.push_back(*fill);
    slices.push_back(run.list(std::move(one)));
    begin = end;
  }
  return run.sequence(Kind::generator, std::move(slices));
}

Value items(Run& run, const Value& value, const Bound&) {
  if (value.is(Kind::undefined)) return run.sequence(Kind::generator, {});
  if (!value.is(Kind::dict)) fail("the filter 'items' needs a dict, not a value of type '" + type_of(value) + "'");
  return run.sequence(Kind::generator, items_of(run, called(run, *method_of(run, value, "items"), {})));
}

}  // namespace

ItemKey::ItemKey(Run& run, const Value* attribute, bool exact, const Value* otherwise)
    : run_(&run), exact_(exact), otherwise_(otherwise && !otherwise->is(Kind::none) ? *otherwise : Value()) {
  if (!attribute || attribute->is(Kind::none)) return;
  if (!attribute->is(Kind::string)) {
    parts_.push_back(*attribute);
    return;
  }
  const std::string& path = attribute->str();
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, end - at);
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == part.npos && part.size() < 18;
    parts_.push_back(digits ? Value::integer(std::stoll(part)) : run.text(part));
    at = end + 1;
  }
}

std::vector<ItemKey> ItemKey::several(Run& run, const Value* attribute, bool exact) {
  std::vector<ItemKey> keys;
  if (!attribute || !attribute->is(Kind::string)) return {ItemKey(run, attribute, exact)};
  const std::string& all = attribute->str();
  for (std::size_t at = 0; at <= all.size();) {
    const std::size_t end = std::min(all.find(',', at), all.size());
    const Value one = run.text(all.substr(at, end - at));
    keys.emplace_back(run, &one, exact);
    at = end + 1;
  }
  return keys;
}

Value ItemKey::of(Value item) const {
  for (const Value& part : parts_) {
    item = item_of(*run_, item, part);
    if (item.is(Kind::undefined) && !otherwise_.is(Kind::undefined)) item = otherwise_;
  }
  return !exact_ && item.is_text() ? run_->text(lower(item.str())) : item;
}

Items ItemKey::keys(const Items& items) const {
  Items keys;
  for (const Value& item : items) keys.push_back(of(item));
  return keys;
}

const std::vector<Builtin>& item_filters() {
  static const std::vector<Builtin> kFilters = {{"batch", "linecount fill_with", 1, batch},
                                                {"count", "", 0, length},
                                                {"dictsort", "case_sensitive by reverse", 0, dictsort},
                                                {"first", "", 0, first},
                                                {"groupby", "attribute default case_sensitive", 1, groupby},
                                                {"items", "", 0, items},
                                                {"join", "d attribute", 0, join},
                                                {"last", "", 0, last},
                                                {"length", "", 0, length},
                                                {"list", "", 0, list},
                                                {"max", "case_sensitive attribute", 0, extreme<true>},
                                                {"min", "case_sensitive attribute", 0, extreme<false>},
                                                {"reverse", "", 0, reverse},
                                                {"slice", "slices fill_with", 1, slice},
                                                {"sort", "reverse case_sensitive attribute", 0, sort},
                                                {"sum", "attribute start", 0, sum},
                                                {"unique", "case_sensitive attribute", 0, unique}};
  return kFilters;
}

}  // namespace foretoken::jinja
