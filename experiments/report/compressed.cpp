#include "experiments/report/compressed.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>

#include <lzma.h>
#include <zlib.h>

#include "kernels/error.h"

namespace foretoken {
namespace {

using namespace std::literals;

constexpr std::size_t kPiece = 1 << 20;  // bytes of text at a time
constexpr int kGzipAlone = 16 + MAX_WBITS;
constexpr std::uint64_t kXzMemory = 128 << 20;  // bytes: `xz -9e` takes 65 MiB, a damaged header could ask for 4 GiB

enum class State { more, end, cut, damaged, too_much_memory };

// Decodes one member from the beginning of `in` into that of `out`, and shortens both by what was used.
using Decoder = std::function<State(std::string_view& in, std::span<char>& out)>;

Decoder gzip() {
  const std::shared_ptr<z_stream> stream(new z_stream{}, [](z_stream* s) {
    inflateEnd(s);
    delete s;
  });
  if (inflateInit2(stream.get(), kGzipAlone) != Z_OK) throw std::bad_alloc();
  return [stream](std::string_view& in, std::span<char>& out) {
    const auto given = uInt(std::min(in.size(), std::size_t(std::numeric_limits<uInt>::max())));
    stream->next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));  // zlib only reads it
    stream->avail_in = given;
    stream->next_out = reinterpret_cast<Bytef*>(out.data());
    stream->avail_out = uInt(out.size());
    const int code = inflate(stream.get(), Z_NO_FLUSH);
    in.remove_prefix(given - stream->avail_in);
    out = out.last(stream->avail_out);
    if (code == Z_MEM_ERROR) throw std::bad_alloc();
    if (code == Z_BUF_ERROR) return State::cut;
    return code == Z_OK ? State::more : code == Z_STREAM_END ? State::end : State::damaged;
  };
}

// Not LZMA_CONCATENATED, which calls bytes behind a stream damage.
Decoder xz() {
  const std::shared_ptr<lzma_stream> stream(new lzma_stream(LZMA_STREAM_INIT), [](lzma_stream* s) {
    lzma_end(s);
    delete s;
  });
  if (lzma_stream_decoder(stream.get(), kXzMemory, 0) != LZMA_OK) throw std::bad_alloc();
  return [stream](std::string_view& in, std::span<char>& out) {
    stream->next_in = reinterpret_cast<const std::uint8_t*>(in.data());
    stream->avail_in = in.size();
    stream->next_out = reinterpret_cast<std::uint8_t*>(out.data());
    stream->avail_out = out.size();
    const lzma_ret code = lzma_code(stream.get(), LZMA_RUN);
    in.remove_prefix(in.size() - stream->avail_in);
    out = out.last(stream->avail_out);
    if (code == LZMA_MEM_ERROR) throw std::bad_alloc();
    if (code == LZMA_BUF_ERROR) return State::cut;
    if (code == LZMA_MEMLIMIT_ERROR) return State::too_much_memory;
    return code == LZMA_OK ? State::more : code == LZMA_STREAM_END ? State::end : State::damaged;
  };
}

struct Format {
  std::string_view magic;  // the first bytes of a member
  std::string_view ending;
  std::string packs, unpacks;  // its tools
  Decoder (*decoder)();
  std::string_view padding;  // that may stand between members; empty: none
};

const std::array<Format, 2>& formats() {
  static const std::array<Format, 2> known{
      {{"\x1f\x8b", ".gz", "gzip", "gunzip", gzip, ""}, {"\3757zXZ\0"sv, ".xz", "xz", "unxz", xz, "\0\0\0\0"sv}}};
  return known;
}

const Format* format_of(std::string_view bytes) {
  const auto found = std::ranges::find_if(formats(), [&](const Format& f) { return bytes.starts_with(f.magic); });
  return found == formats().end() ? nullptr : &*found;
}

// Of why a member was not decoded to its end.
std::string sentence(State state, const Format& format) {
  if (state == State::too_much_memory)
    return " takes more than " + std::to_string(kXzMemory >> 20) + " MiB of memory to unpack; compress it with " +
           format.packs + " -9, whose files take half of that";
  return (state == State::cut ? " is cut off" : " is damaged") + std::string(", so that ") + format.packs +
         " cannot restore its text; copy it again, or restore it with git checkout";
}

void add_member(std::string& text, std::string_view& left, const Format& format, const std::string& who,
                std::size_t most) {
  if (!left.starts_with(format.magic))
    throw Error(who + " has other bytes after its compressed text; compress the text alone, with " + format.packs);
  const Decoder decode = format.decoder();
  State state = State::more;
  while (state == State::more) {
    const std::size_t size = text.size();
    text.resize(size + kPiece);
    std::span<char> room(text.data() + size, kPiece);
    state = decode(left, room);
    text.resize(text.size() - room.size());
    if (text.size() > most)
      throw Error(who + " unpacks to more than " + std::to_string(most >> 20) +
                  " MiB, which no file of results has; unpack it with " + format.unpacks + ", and name a part of it");
  }
  if (state != State::end) throw Error(who + sentence(state, format));
  while (!format.padding.empty() && left.starts_with(format.padding)) left.remove_prefix(format.padding.size());
}

}  // namespace

bool is_compressed(std::string_view bytes) { return format_of(bytes) != nullptr; }

bool has_compressed_name(const std::filesystem::path& file) {
  return std::ranges::any_of(formats(), [&](const Format& f) { return file.extension() == f.ending; });
}

std::string decompress(std::string_view bytes, const std::string& who, std::size_t most) {
  const Format* const format = format_of(bytes);
  if (!format) throw std::invalid_argument(who + " is not compressed");
  std::string text;
  while (!bytes.empty()) add_member(text, bytes, *format, who, most);
  return text;
}

}  // namespace foretoken
