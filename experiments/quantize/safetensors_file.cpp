#include "experiments/quantize/safetensors_file.h"

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "framework/text/regular_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

// Zero, or the errno of what failed.
int write_file(const std::filesystem::path& file, std::span<const std::string_view> pieces) {
  const Descriptor d(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (d.number() < 0) return errno;
  for (std::string_view bytes : pieces)
    while (!bytes.empty()) {
      const ssize_t n = ::write(d.number(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return n < 0 ? errno : ENOSPC;
      bytes.remove_prefix(std::size_t(n));
    }
  return ::fsync(d.number()) == 0 ? 0 : errno;
}

// Where a symbolic link leads, also to a file that is not there yet: the link stays, as where a file is appended to.
std::filesystem::path target_of(std::filesystem::path file) {
  constexpr int kMostLinks = 40;  // as the system follows
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(file, error); ++i)
    file = file.parent_path() / std::filesystem::read_symlink(file, error);
  return file;
}

std::string header_of(std::span<const StoredTensor> tensors) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  std::int64_t at = 0;
  for (const StoredTensor& t : tensors) {
    std::vector<std::int64_t> shape;
    for (int i = 0; i < t.values.rank(); ++i) shape.push_back(t.values.dim(i));
    header[t.name] = {{"dtype", t.type}, {"shape", shape}, {"data_offsets", {at, at + t.values.bytes()}}};
    at += t.values.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the tensors begin aligned
  const std::uint64_t size = text.size();
  std::string length(8, '\0');
  std::memcpy(length.data(), &size, 8);
  return length + text;
}

}  // namespace

StoredTensor stored_tensor(std::string name, Tensor values) {
  constexpr const char* kTypes[] = {"F32", "BF16", "F16", "I8", "U8", "I32", "I64", "U64"};  // as DType has them
  const char* const type = kTypes[int(values.dtype())];
  return {std::move(name), type, std::move(values)};
}

void write_whole(const std::filesystem::path& file, std::span<const std::string_view> pieces) {
  const std::filesystem::path target = target_of(file), beside = target.string() + ".writing";
  int why = write_file(beside, pieces);
  if (why == 0 && ::rename(beside.c_str(), target.c_str()) != 0) why = errno;
  if (why == 0) return;
  ::unlink(beside.c_str());
  throw Error(file.string() + " cannot be written (" + std::strerror(why) +
              "); make room or correct the permissions, then give the command again");
}

void write_safetensors(const std::filesystem::path& file, std::span<const StoredTensor> tensors) {
  const std::string header = header_of(tensors);
  std::vector<std::string_view> pieces{header};
  for (const StoredTensor& t : tensors)
    pieces.emplace_back(static_cast<const char*>(t.values.raw()), std::size_t(t.values.bytes()));
  write_whole(file, pieces);
}

}  // namespace foretoken
