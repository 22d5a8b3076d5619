// The metadata of a GGUF file: typed values by key. Whatever is wrong becomes one sentence that names the file, the key
// and the value. This module must not know what the keys mean.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foretoken {

class GgufCursor;

// The end of a sentence about a file that llama.cpp does not write.
inline constexpr const char* kConvertAgain = "; convert the model again with llama.cpp's convert_hf_to_gguf.py";

struct GgufValue {
  enum class Type : std::uint8_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
  Type type = Type::u8;  // of an array: of its elements
  bool array = false;
  std::uint64_t count = 1;                // elements
  std::string_view bytes{};               // numbers, one after another
  std::vector<std::string_view> strings;  // strings in place of numbers

  std::optional<std::int64_t> integer(std::uint64_t i) const;  // nullopt: not an integer, or beyond 63 bits
  std::optional<double> number(std::uint64_t i) const;         // nullopt: not a number
};

class GgufMetadata {
 public:
  // Reads `count` pairs of key and value. The values are views of the cursor's bytes. A key that occurs twice, an
  // unknown type or an array of arrays is an Error.
  static GgufMetadata read(GgufCursor& from, std::uint64_t count, std::string where);

  bool has(const std::string& key) const { return values_.contains(key); }
  std::string string(const std::string& key) const;
  std::string string_or(const std::string& key, const std::string& otherwise) const;
  // An integer within [least, most].
  int integer(const std::string& key, int least, int most) const;
  int integer_or(const std::string& key, int least, int most, int otherwise) const;
  // A finite number > 0.
  double positive(const std::string& key) const;
  double positive_or(const std::string& key, double otherwise) const;
  bool boolean_or(const std::string& key, bool otherwise) const;
  const std::vector<std::string_view>& strings(const std::string& key) const;
  std::vector<std::int64_t> integers(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;

  std::vector<std::string> keys() const;
  const std::string& where() const { return where_; }
  // Throws: "WHERE: the metadata 'KEY' is VALUE, but WHY".
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;

 private:
  const GgufValue& at(const std::string& key) const;
  const GgufValue& array(const std::string& key, const char* of) const;

  std::map<std::string, GgufValue> values_;
  std::string where_;
};

}  // namespace foretoken
