#include "experiments/report/gzip.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include <zlib.h>

#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr std::size_t kPiece = 1 << 20;  // bytes of text at a time
constexpr int kGzipAlone = 16 + MAX_WBITS;

class Inflation {
 public:
  Inflation(std::string_view bytes, const std::string& who, std::size_t most) : left_(bytes), who_(who), most_(most) {
    if (inflateInit2(&stream_, kGzipAlone) != Z_OK) throw std::bad_alloc();
  }
  ~Inflation() { inflateEnd(&stream_); }
  Inflation(const Inflation&) = delete;

  std::string text() {
    do {
      member();
    } while (!left_.empty());
    return std::move(text_);
  }

 private:
  void member() {
    if (!is_gzip(left_))
      throw Error(who_ + " has other bytes after its compressed text; compress the text alone, with gzip");
    inflateReset(&stream_);
    int state = Z_OK;
    while (state == Z_OK) state = piece();
    if (state == Z_STREAM_END) return;
    throw Error(who_ + (state == Z_BUF_ERROR ? " is cut off" : " is damaged") +
                ", so that gzip cannot restore its text; copy it again, or restore it with git checkout");
  }

  int piece() {
    const std::size_t size = text_.size();
    text_.resize(size + kPiece);
    const auto given = uInt(std::min(left_.size(), std::size_t(std::numeric_limits<uInt>::max())));
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(left_.data()));  // zlib only reads it
    stream_.avail_in = given;
    stream_.next_out = reinterpret_cast<Bytef*>(text_.data() + size);
    stream_.avail_out = uInt(kPiece);
    const int state = inflate(&stream_, Z_NO_FLUSH);
    left_.remove_prefix(given - stream_.avail_in);
    text_.resize(size + kPiece - stream_.avail_out);
    if (text_.size() > most_)
      throw Error(who_ + " unpacks to more than " + std::to_string(most_ >> 20) +
                  " MiB, which no file of results has; unpack it with gunzip, and name a part of it");
    return state;
  }

  std::string_view left_;
  const std::string& who_;
  const std::size_t most_;
  std::string text_;
  z_stream stream_{};
};

}  // namespace

bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

std::string gunzip(std::string_view bytes, const std::string& who, std::size_t most) {
  return Inflation(bytes, who, most).text();
}

}  // namespace foretoken
