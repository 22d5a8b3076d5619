// Text that gzip compressed (RFC 1952), read with zlib. This module must not know what the text means.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace foretoken {

constexpr std::size_t kMostText = std::size_t(1) << 30;  // bytes: a hundred times the largest file of this repository

// By its first two bytes, with which no text begins.
bool is_gzip(std::string_view bytes);

// The text of one compressed file, or of several one after another, as `cat` joins them. Damaged, cut off, followed by
// other bytes, or more than `most` bytes long is an Error that begins with `who`.
std::string gunzip(std::string_view bytes, const std::string& who, std::size_t most = kMostText);

}  // namespace foretoken
