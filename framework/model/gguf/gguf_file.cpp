#include "framework/model/gguf/gguf_file.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "framework/model/gguf/gguf_cursor.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are read as little-endian");

constexpr const char* kAgain = "; download it again";
constexpr int kDefaultAlignment = 32, kMostAlignment = 1 << 16;

void expect_version(std::uint32_t version, const std::string& file) {
  if (version == 2 || version == 3) return;
  if (version != 0 && (version & 0xffff) == 0)
    throw Error(file + " is big-endian, which is not supported; convert it with gguf_convert_endian.py of llama.cpp");
  throw Error(file + " has GGUF version " + std::to_string(version) + ", but versions 2 and 3 are supported" +
              kConvertAgain);
}

void expect_one_model(const GgufMetadata& m) {
  if (m.has("split.count") && m.integer("split.count", 0, INT32_MAX) > 1)
    m.refuse("split.count", "a model must be in one file; merge the parts with llama.cpp's gguf-split");
  if (m.string_or("general.type", "model") != "model")
    m.refuse("general.type", "only a \"model\" can be run; give the path of the model itself");
  if (m.has("general.quantization_version") && m.integer("general.quantization_version", 0, INT32_MAX) != 2)
    m.refuse("general.quantization_version", "2 is supported; quantize the model again with llama.cpp");
}

}  // namespace

std::shared_ptr<const GgufFile> GgufFile::open(const std::filesystem::path& path) {
  const auto file = std::make_shared<GgufFile>();
  file->where_ = path.string();
  file->mapping_ = std::make_shared<MappedFile>(path, ".gguf");
  GgufCursor from({file->mapping_->data(), std::size_t(file->mapping_->size())}, file->where_);
  if (from.left() < 4 || from.take(4, "the magic number") != "GGUF")
    throw Error(file->where_ +
                " is not a GGUF file (it does not begin with \"GGUF\"); a model is a .gguf file, or a directory with "
                "config.json, model.safetensors and tokenizer.json");
  file->read_header(from);
  return file;
}

void GgufFile::read_header(GgufCursor& from) {
  expect_version(from.read<std::uint32_t>("the version"), where_);
  const auto tensors = from.read<std::uint64_t>("the number of tensors");
  const auto pairs = from.read<std::uint64_t>("the number of metadata");
  metadata_ = GgufMetadata::read(from, pairs, where_);
  expect_one_model(metadata_);
  std::map<std::string, std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < tensors; ++i) read_tensor(from, offsets);
  place(offsets, from.at());
}

// The file counts dimensions from the innermost.
void GgufFile::read_tensor(GgufCursor& from, std::map<std::string, std::uint64_t>& offsets) {
  const std::string name(from.string("the name of a tensor"));
  const std::string who = where_ + ": tensor '" + shown_name(name) + "'";
  const auto rank = from.read<std::uint32_t>("the rank of a tensor");
  if (rank < 1 || rank > 4)
    throw Error(who + " has " + std::to_string(rank) + " dimensions; 1 to 4 are supported" + kAgain);
  std::uint64_t dims[4] = {1, 1, 1, 1}, elements = 1;
  for (std::uint32_t i = 0; i < rank; ++i) {
    dims[i] = from.read<std::uint64_t>("a dimension of a tensor");
    if (dims[i] == 0 || dims[i] >> 48 || __builtin_mul_overflow(elements, dims[i], &elements) || elements >> 56)
      throw Error(who + " has a dimension of " + std::to_string(dims[i]) + ", which no tensor of a model has" + kAgain);
  }
  GgufTensor t;
  t.type = &gguf_type(from.read<std::uint32_t>("the type of a tensor"), who);
  if (dims[0] % std::uint64_t(t.type->block))
    throw Error(who + " has rows of " + std::to_string(dims[0]) + ", but the blocks of " + t.type->name + " have " +
                std::to_string(t.type->block) + kAgain);
  t.bytes = elements / std::uint64_t(t.type->block) * std::uint64_t(t.type->bytes);
  const auto d = [&](std::uint32_t i) { return std::int64_t(dims[i]); };
  t.shape = rank == 1   ? Shape{d(0)}
            : rank == 2 ? Shape{d(1), d(0)}
            : rank == 3 ? Shape{d(2), d(1), d(0)}
                        : Shape{d(3), d(2), d(1), d(0)};
  const auto offset = from.read<std::uint64_t>("the offset of a tensor");
  if (!tensors_.emplace(name, t).second) throw Error(who + " occurs twice" + kAgain);
  offsets.emplace(name, offset);
}

// Offsets count from the first aligned byte after the header.
void GgufFile::place(const std::map<std::string, std::uint64_t>& offsets, std::uint64_t header_end) {
  const auto alignment = std::uint64_t(metadata_.integer_or("general.alignment", 8, kMostAlignment, kDefaultAlignment));
  if (!std::has_single_bit(alignment)) metadata_.refuse("general.alignment", "must be a power of two");
  const std::uint64_t begin = (header_end + alignment - 1) / alignment * alignment;
  const std::uint64_t size = begin <= mapping_->size() ? mapping_->size() - begin : 0;
  std::vector<std::pair<std::uint64_t, std::string>> order;
  for (auto& [name, t] : tensors_) {
    const std::uint64_t offset = offsets.at(name);
    const std::string who = where_ + ": tensor '" + shown_name(name) + "'";
    if (offset % alignment)
      throw Error(who + " begins at byte " + std::to_string(offset) + " of the data, which is no multiple of " +
                  std::to_string(alignment) + kAgain);
    if (offset > size || t.bytes > size - offset)
      throw Error(where_ + " is truncated: tensor '" + shown_name(name) + "' has " + std::to_string(t.bytes) +
                  " bytes at byte " + std::to_string(offset) + " of the data, but the data has " +
                  std::to_string(size) + kAgain);
    t.data = mapping_->data() + begin + offset;
    order.emplace_back(offset, name);
  }
  std::ranges::sort(order);
  expect_no_gaps(order, size, alignment);
}

// Each tensor begins where the one before ends, but for alignment, and the last ends the file: a tensor whose type or
// dimensions are damaged then does not fit its place.
void GgufFile::expect_no_gaps(const std::vector<std::pair<std::uint64_t, std::string>>& order, std::uint64_t size,
                              std::uint64_t alignment) const {
  std::uint64_t end = 0;
  std::string before;
  for (const auto& [offset, name] : order) {
    const std::string who = where_ + " is damaged: tensor '" + shown_name(name) + "' ";
    if (offset < end) throw Error(who + "overlaps tensor '" + shown_name(before) + "'" + kAgain);
    if (offset - end >= alignment)
      throw Error(who + "begins " + std::to_string(offset - end) + " bytes behind " +
                  (before.empty() ? "the header" : "tensor '" + shown_name(before) + "'") + kAgain);
    end = offset + tensors_.at(name).bytes, before = name;
  }
  if (size - end >= alignment)
    throw Error(where_ + " is damaged: " + std::to_string(size - end) + " bytes follow its last tensor, '" +
                shown_name(before) + "'" + kAgain);
}

}  // namespace foretoken
