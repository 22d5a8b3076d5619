#include "framework/model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "framework/model/mapped_file.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the limit of the reference implementation

// The header's entry of one tensor; bytes are counted from the end of the header.
struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t begin, end;
};

constexpr const char* kAgain = "; download it again";

[[noreturn]] void refuse(const std::string& file, const std::string& tensor, const std::string& what) {
  throw Error(file + " is damaged: tensor '" + tensor + "' " + what + kAgain);
}

DType read_dtype(const Fields& fields, const std::string& tensor) {
  const std::string name = fields.string("dtype");
  for (DType t :
       {DType::f32, DType::bf16, DType::f16, DType::i8, DType::u8, DType::i32, DType::i64, DType::u64, DType::e4m3})
    if (name == name_of(t)) return t;
  if (name == "BOOL") return DType::u8;
  throw Error(fields.where() + ": tensor '" + tensor + "' has the dtype '" + name +
              "', which is not supported; convert it to F32, F16 or BF16 (known are also I64, I32, I8, U8, U64, "
              "F8_E4M3, BOOL)");
}

// Bytes of the tensor by its shape and dtype. A size of more than 62 bits is refused.
std::uint64_t read_shape(const Fields& fields, const std::string& tensor, DType dtype, Shape& shape) {
  const json& dims = fields.array("shape");
  if (dims.size() > 4)
    throw Error(fields.where() + ": tensor '" + tensor + "' has " + std::to_string(dims.size()) +
                " dimensions; at most 4 are supported");
  std::int64_t d[4] = {};
  std::uint64_t bytes = std::uint64_t(size_of(dtype));
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (!dims[i].is_number_unsigned() || dims[i].get<std::uint64_t>() >> 48)
      refuse(fields.where(), tensor, "has the shape " + shown(dims));
    d[i] = dims[i].get<std::int64_t>();
    if (__builtin_mul_overflow(bytes, std::uint64_t(d[i]), &bytes) || bytes >> 62)
      refuse(fields.where(), tensor, "has the shape " + shown(dims));
  }
  switch (dims.size()) {
    case 0:
      shape = {};
      break;
    case 1:
      shape = {d[0]};
      break;
    case 2:
      shape = {d[0], d[1]};
      break;
    case 3:
      shape = {d[0], d[1], d[2]};
      break;
    default:
      shape = {d[0], d[1], d[2], d[3]};
  }
  return bytes;
}

Entry read_entry(const json& value, const std::string& name, const std::string& file, std::uint64_t header_end,
                 std::uint64_t file_size) {
  const Fields fields(value, file, "tensor '" + name + "'");
  Entry e{name, read_dtype(fields, name), {}, 0, 0};
  const std::uint64_t bytes = read_shape(fields, name, e.dtype, e.shape);
  const json& offsets = fields.array("data_offsets");
  if (offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    refuse(file, name, "has the data_offsets " + shown(offsets));
  e.begin = offsets[0].get<std::uint64_t>();
  e.end = offsets[1].get<std::uint64_t>();
  if (e.begin > e.end)
    refuse(file, name, "ends at byte " + std::to_string(e.end) + " before it begins at " + std::to_string(e.begin));
  if (e.end - e.begin != bytes)
    refuse(file, name,
           "of shape " + e.shape.text() + " and dtype " + name_of(e.dtype) + " needs " + std::to_string(bytes) +
               " bytes, but its data_offsets span " + std::to_string(e.end - e.begin));
  if (e.end > file_size - header_end)
    throw Error(file + " is truncated: tensor '" + name + "' ends at byte " +
                (e.end >> 62 ? shown(offsets[1]) : std::to_string(header_end + e.end)) + " but the file has " +
                std::to_string(file_size) + kAgain);
  return e;
}

// The format requires that every byte belongs to exactly one tensor.
void check_cover(std::vector<Entry>& entries, const std::string& file, std::uint64_t data_size) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t at = 0;
  const std::string* before = nullptr;
  for (const Entry& e : entries) {
    if (e.begin < at) refuse(file, e.name, "overlaps tensor '" + *before + "'");
    if (e.begin > at) refuse(file, e.name, "leaves a hole of " + std::to_string(e.begin - at) + " bytes before it");
    at = e.end;
    before = &e.name;
  }
  if (at != data_size)
    throw Error(file + " is damaged: " + std::to_string(data_size - at) +
                " bytes after the last tensor belong to none" + kAgain);
}

json read_header(const MappedFile& mapping, const std::string& file, std::uint64_t& header_end) {
  std::uint64_t length = 0;
  if (mapping.size() < 8)
    throw Error(file + " is truncated: it has only " + std::to_string(mapping.size()) + " bytes" + kAgain);
  std::memcpy(&length, mapping.data(), 8);
  if (length > kLongestHeader)
    throw Error(file + " is not a safetensors file, or damaged: its header would have " + std::to_string(length) +
                " bytes, and the format allows " + std::to_string(kLongestHeader) + kAgain);
  if (length > mapping.size() - 8)
    throw Error(file + " is truncated: its header ends at byte " + std::to_string(8 + length) + " but the file has " +
                std::to_string(mapping.size()) + kAgain);
  header_end = 8 + length;
  return parse_json({mapping.data() + 8, std::size_t(length)}, "the header of " + file);
}

}  // namespace

std::map<std::string, Tensor> map_safetensors(const std::filesystem::path& path) {
  const std::string file = path.string();
  const auto mapping = std::make_shared<MappedFile>(path, ".safetensors");
  std::uint64_t header_end = 0;
  const json header = read_header(*mapping, file, header_end);
  if (!header.is_object())
    throw Error("the header of " + file + " is " + shown(header) + ", but must be a JSON object" + kAgain);
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items())
    if (name != "__metadata__") entries.push_back(read_entry(value, name, file, header_end, mapping->size()));
  check_cover(entries, file, mapping->size() - header_end);

  std::map<std::string, Tensor> tensors;
  for (const Entry& e : entries) {
    char* at = mapping->data() + header_end + e.begin;
    Tensor t;
    if (reinterpret_cast<std::uintptr_t>(at) % std::uintptr_t(size_of(e.dtype)) == 0) {
      t = Tensor(mapping, at, e.shape, e.dtype);
    } else {
      t = Tensor::host(e.shape, e.dtype);
      std::memcpy(t.raw(), at, e.end - e.begin);
    }
    tensors.emplace(e.name, std::move(t));
  }
  return tensors;
}

}  // namespace foretoken
