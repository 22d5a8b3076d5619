#include "framework/model/gguf/gguf_metadata.h"

#include <cmath>
#include <cstring>

#include "framework/model/gguf/gguf_cursor.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using Type = GgufValue::Type;

// Bytes of an element; 0: a string.
std::uint64_t size_of(Type type) {
  constexpr std::uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kBytes[int(type)];
}

template <class T> T element(std::string_view bytes, std::uint64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return value;
}

std::string shown(const GgufValue& v) {
  if (v.array) return "an array of " + std::to_string(v.count) + (v.count == 1 ? " element" : " elements");
  if (v.type == Type::string) return "\"" + shown_name(v.strings.front()) + "\"";
  if (v.type == Type::boolean) return v.bytes.front() ? "true" : "false";
  if (v.type == Type::u64) return std::to_string(element<std::uint64_t>(v.bytes, 0));
  if (const auto i = v.integer(0)) return std::to_string(*i);
  std::string s = std::to_string(v.number(0).value_or(0));
  return s;
}

Type read_type(GgufCursor& from, const std::string& key) {
  const auto type = from.read<std::uint32_t>("the type of a metadata value");
  if (type > std::uint32_t(Type::f64))
    throw Error(from.where() + ": the metadata '" + key + "' has the unknown type " + std::to_string(type) +
                "; the file is damaged, or newer than GGUF version 3: download it again");
  return Type(type);
}

GgufValue read_value(GgufCursor& from, const std::string& key) {
  GgufValue v;
  v.type = read_type(from, key);
  if (v.type == Type::array) {
    v.array = true;
    v.type = read_type(from, key);
    if (v.type == Type::array)
      throw Error(from.where() + ": the metadata '" + key + "' is an array of arrays, which is not supported");
    v.count = from.read<std::uint64_t>("the length of a metadata array");
  }
  if (v.type == Type::string) {
    for (std::uint64_t i = 0; i < v.count; ++i) v.strings.push_back(from.string("a metadata string"));
    return v;
  }
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(v.count, size_of(v.type), &bytes)) bytes = UINT64_MAX;
  v.bytes = from.take(bytes, "a metadata value");
  return v;
}

}  // namespace

std::optional<std::int64_t> GgufValue::integer(std::uint64_t i) const {
  switch (type) {
    case Type::u8:
      return element<std::uint8_t>(bytes, i);
    case Type::i8:
      return element<std::int8_t>(bytes, i);
    case Type::u16:
      return element<std::uint16_t>(bytes, i);
    case Type::i16:
      return element<std::int16_t>(bytes, i);
    case Type::u32:
      return element<std::uint32_t>(bytes, i);
    case Type::i32:
      return element<std::int32_t>(bytes, i);
    case Type::i64:
      return element<std::int64_t>(bytes, i);
    case Type::u64:
      if (const auto n = element<std::uint64_t>(bytes, i); n <= std::uint64_t(INT64_MAX)) return std::int64_t(n);
      return {};
    default:
      return {};
  }
}

std::optional<double> GgufValue::number(std::uint64_t i) const {
  if (type == Type::f32) return element<float>(bytes, i);
  if (type == Type::f64) return element<double>(bytes, i);
  const auto whole = integer(i);
  return whole ? std::optional(double(*whole)) : std::nullopt;
}

GgufMetadata GgufMetadata::read(GgufCursor& from, std::uint64_t count, std::string where) {
  GgufMetadata m;
  m.where_ = std::move(where);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string key(from.string("a metadata key"));
    GgufValue value = read_value(from, shown_name(key));
    if (!m.values_.emplace(key, std::move(value)).second)
      throw Error(m.where_ + " has the metadata '" + shown_name(key) + "' twice; download it again");
  }
  return m;
}

const GgufValue& GgufMetadata::at(const std::string& key) const {
  const auto it = values_.find(key);
  if (it == values_.end())
    throw Error(where_ + " has no metadata '" + key + "', since it is no model or is incomplete" + kConvertAgain);
  return it->second;
}

const GgufValue& GgufMetadata::array(const std::string& key, const char* of) const {
  const GgufValue& v = at(key);
  if (!v.array) refuse(key, std::string("must be an array of ") + of);
  return v;
}

void GgufMetadata::refuse(const std::string& key, const std::string& why) const {
  const auto it = values_.find(key);
  throw Error(where_ + ": the metadata '" + shown_name(key) + "' is " +
              (it == values_.end() ? "absent" : shown(it->second)) + ", but " + why);
}

std::string GgufMetadata::string(const std::string& key) const {
  const GgufValue& v = at(key);
  if (v.array || v.type != Type::string) refuse(key, "must be a string");
  return std::string(v.strings.front());
}

std::string GgufMetadata::string_or(const std::string& key, const std::string& otherwise) const {
  return has(key) ? string(key) : otherwise;
}

int GgufMetadata::integer(const std::string& key, int least, int most) const {
  const GgufValue& v = at(key);
  const auto value = v.array ? std::nullopt : v.integer(0);
  if (!value || *value < least || *value > most)
    refuse(key, "must be an integer from " + std::to_string(least) + " to " + std::to_string(most));
  return int(*value);
}

int GgufMetadata::integer_or(const std::string& key, int least, int most, int otherwise) const {
  return has(key) ? integer(key, least, most) : otherwise;
}

double GgufMetadata::positive(const std::string& key) const {
  const GgufValue& v = at(key);
  const auto value = v.array || v.type == Type::string ? std::nullopt : v.number(0);
  if (!value || !std::isfinite(*value) || *value <= 0) refuse(key, "must be a number above 0");
  return *value;
}

double GgufMetadata::positive_or(const std::string& key, double otherwise) const {
  return has(key) ? positive(key) : otherwise;
}

bool GgufMetadata::boolean_or(const std::string& key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const GgufValue& v = at(key);
  if (v.array || v.type != Type::boolean) refuse(key, "must be true or false");
  return v.bytes.front() != 0;
}

const std::vector<std::string_view>& GgufMetadata::strings(const std::string& key) const {
  const GgufValue& v = array(key, "strings");
  if (v.type != Type::string) refuse(key, "must be an array of strings");
  return v.strings;
}

std::vector<std::int64_t> GgufMetadata::integers(const std::string& key) const {
  const GgufValue& v = array(key, "integers");
  std::vector<std::int64_t> all;
  for (std::uint64_t i = 0; i < v.count; ++i) {
    const auto value = v.integer(i);
    if (!value) refuse(key, "must be an array of integers");
    all.push_back(*value);
  }
  return all;
}

std::vector<double> GgufMetadata::numbers(const std::string& key) const {
  const GgufValue& v = array(key, "numbers");
  std::vector<double> all;
  for (std::uint64_t i = 0; i < v.count; ++i) {
    const auto value = v.number(i);
    if (!value) refuse(key, "must be an array of numbers");
    all.push_back(*value);
  }
  return all;
}

std::vector<std::string> GgufMetadata::keys() const {
  std::vector<std::string> all;
  for (const auto& [key, value] : values_) all.push_back(key);
  return all;
}

}  // namespace foretoken
