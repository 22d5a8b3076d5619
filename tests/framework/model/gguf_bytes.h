// Writes GGUF files byte by byte, wrong ones too.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace foretoken::test {

template <class T> std::string bytes_of(T value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

inline std::string text_of(const std::string& text) { return bytes_of<std::uint64_t>(text.size()) + text; }

// Metadata: the number of a type, then the value.
inline std::string u32_value(std::uint32_t value) { return bytes_of<std::uint32_t>(4) + bytes_of(value); }
inline std::string i32_value(std::int32_t value) { return bytes_of<std::uint32_t>(5) + bytes_of(value); }
inline std::string f32_value(float value) { return bytes_of<std::uint32_t>(6) + bytes_of(value); }
inline std::string bool_value(bool value) { return bytes_of<std::uint32_t>(7) + bytes_of(value); }
inline std::string text_value(const std::string& value) { return bytes_of<std::uint32_t>(8) + text_of(value); }
// An array of elements of this type.
inline std::string array_value(std::uint32_t type, const std::vector<std::string>& elements) {
  std::string all = bytes_of<std::uint32_t>(9) + bytes_of(type) + bytes_of<std::uint64_t>(elements.size());
  for (const std::string& e : elements) all += e;
  return all;
}
inline std::string texts_value(const std::vector<std::string>& texts) {
  std::vector<std::string> elements;
  for (const std::string& t : texts) elements.push_back(text_of(t));
  return array_value(8, elements);
}

struct GgufBytes {
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  std::string magic = "GGUF";
  std::uint32_t version = 3;
  Pairs metadata;
  std::string tensors;  // their infos
  std::uint64_t tensor_count = 0;
  std::string data;
  std::size_t alignment = 32;

  // Replaces the value of a key, or adds it; "" removes it.
  GgufBytes& set(const std::string& key, const std::string& value) {
    std::erase_if(metadata, [&](const auto& pair) { return pair.first == key; });
    if (!value.empty()) metadata.emplace_back(key, value);
    return *this;
  }
  // `dims` from the innermost; type 0 is F32.
  GgufBytes& tensor(const std::string& name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                    std::uint64_t offset) {
    tensors += text_of(name) + bytes_of(std::uint32_t(dims.size()));
    for (const std::uint64_t d : dims) tensors += bytes_of(d);
    tensors += bytes_of(type) + bytes_of(offset);
    ++tensor_count;
    return *this;
  }
  // The same behind all data, with bytes of its own.
  GgufBytes& append(const std::string& name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                    const std::string& bytes) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    tensor(name, dims, type, data.size());
    data += bytes;
    return *this;
  }
  std::string bytes() const {
    std::string all = magic + bytes_of(version) + bytes_of(tensor_count) + bytes_of(std::uint64_t(metadata.size()));
    for (const auto& [key, value] : metadata) all += text_of(key) + value;
    all += tensors;
    if (!data.empty()) all.resize((all.size() + alignment - 1) / alignment * alignment);
    return all + data;
  }
};

}  // namespace foretoken::test
