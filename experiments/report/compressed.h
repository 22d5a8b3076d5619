// Text that gzip (RFC 1952) or xz compressed, read with zlib and liblzma. This module must not know what the text
// means.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace foretoken {

constexpr std::size_t kMostText = std::size_t(1) << 30;  // bytes: a hundred times the largest file of this repository

// By its first bytes, with which no text begins.
bool is_compressed(std::string_view bytes);

// Whether a file is named like a compressed one: .gz or .xz.
bool has_compressed_name(const std::filesystem::path& file);

// The text of one compressed file, or of several of one format one after another, as `cat` joins them. `bytes` is
// compressed as is_compressed() knows it. Damaged, cut off, followed by other bytes, or more than `most` bytes long is
// an Error that begins with `who`.
std::string decompress(std::string_view bytes, const std::string& who, std::size_t most = kMostText);

}  // namespace foretoken
