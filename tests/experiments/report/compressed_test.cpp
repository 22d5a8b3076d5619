// Compressed results: read like plain ones whatever their name, refused where they are damaged, never appended to.
#include "experiments/report/compressed.h"

#include <cstdint>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <lzma.h>
#include <zlib.h>

#include "tests/experiments/report/results_files.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

std::string by_gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string bytes(deflateBound(&stream, text.size()), '\0'), in = text;
  stream.next_in = reinterpret_cast<Bytef*>(in.data()), stream.avail_in = uInt(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data()), stream.avail_out = uInt(bytes.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

std::string by_xz(const std::string& text) {
  std::string bytes(lzma_stream_buffer_bound(text.size()), '\0');
  std::size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(9 | LZMA_PRESET_EXTREME, LZMA_CHECK_CRC64, nullptr,
                                    reinterpret_cast<const std::uint8_t*>(text.data()), text.size(),
                                    reinterpret_cast<std::uint8_t*>(bytes.data()), &size, bytes.size()),
            LZMA_OK);
  bytes.resize(size);
  return bytes;
}

struct Format {
  std::string name, ending, unpacks;
  std::string (*compressed)(const std::string& text);
  std::size_t magic;      // bytes that tell it
  std::size_t method_at;  // of a byte that names how the text is compressed
};

class Compressed : public testing::TestWithParam<Format> {
 protected:
  static std::string compressed(const std::string& text) { return GetParam().compressed(text); }
  static std::string ending() { return GetParam().ending; }
  static std::string sentence_of_bytes(const std::string& bytes, std::size_t most = kMostText) {
    return sentence_of([&] { decompress(bytes, "it", most); });
  }
  std::filesystem::path file(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder.path() / name, std::ios::binary) << bytes;
    return folder.path() / name;
  }
  TemporaryFolder folder;
};

INSTANTIATE_TEST_SUITE_P(By, Compressed,
                         testing::Values(Format{"gzip", ".gz", "gunzip", by_gzip, 2, 2},
                                         Format{"xz", ".xz", "unxz", by_xz, 6, 14}),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(Compressed, GivesTheTextBack) {
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += std::to_string(i) + (i % 7 ? "," : "\n");  // longer than a piece
  EXPECT_EQ(decompress(compressed(text), "it"), text);
  EXPECT_EQ(decompress(compressed(""), "it"), "");
  EXPECT_EQ(decompress(compressed("a") + compressed("") + compressed("b\n"), "it"), "ab\n") << "as cat joins files";
  EXPECT_TRUE(is_compressed(compressed("a")));
  for (const char* text_itself : {"", "{", "\x1f", "\xfd"}) EXPECT_FALSE(is_compressed(text_itself));
}

TEST_P(Compressed, WhatIsDamagedIsOneSentence) {
  const std::string& name = GetParam().name;
  const std::string whole = compressed(written(line_of("a")));
  for (std::size_t size = GetParam().magic; size < whole.size(); ++size)
    ASSERT_TRUE(says(sentence_of_bytes(whole.substr(0, size)), "it is cut off", name, "copy it again")) << size;
  std::string flipped = whole;
  flipped[flipped.size() - 5] ^= 1;  // of what is stored about the text at the end
  EXPECT_TRUE(says(sentence_of_bytes(flipped), "it is damaged", name, "copy it again"));
  flipped = whole, flipped[whole.size() / 2] ^= 1;
  EXPECT_TRUE(says(sentence_of_bytes(flipped), "it is damaged", name, "copy it again"));
  flipped = whole, flipped[GetParam().method_at] = 9;  // an unknown method
  EXPECT_TRUE(says(sentence_of_bytes(flipped), "it is damaged"));
  const std::string other = name == "xz" ? by_gzip("b") : by_xz("b");
  for (const std::string& tail : {std::string("x"), std::string(3, '\0'), whole.substr(0, 1), other})
    EXPECT_TRUE(says(sentence_of_bytes(whole + tail), "it has other bytes after", name));
}

TEST_P(Compressed, WhatUnpacksToTooMuchIsNotUnpacked) {
  const std::string bomb = compressed(std::string(64 << 20, ' '));
  EXPECT_LT(bomb.size(), 1u << 17);
  EXPECT_TRUE(says(sentence_of_bytes(bomb, 2 << 20), "it unpacks to more than 2 MiB", GetParam().unpacks));
  EXPECT_EQ(decompress(bomb, "it", 64 << 20).size(), 64u << 20);
}

TEST_P(Compressed, ResultsAreReadLikePlainOnes) {
  const std::string text = written(line_of("a")) + written(line_of("b"));
  const auto load = [](const std::filesystem::path& path) {
    json lines = json::array();
    for (const Result& result : load_results(path)) lines.push_back(to_json(result));
    return lines;
  };
  const json plain = load(file("a.jsonl", text));
  EXPECT_EQ(load(file("a.jsonl" + ending(), compressed(text))), plain);
  EXPECT_EQ(load(file("b.jsonl", compressed(text))), plain) << "by its bytes, not its name";
  EXPECT_EQ(load(file("c" + ending(), text)), plain);
  const std::string cut = "d" + ending(), other = "e" + ending();
  EXPECT_TRUE(says(sentence_of([&] { load_results(file(cut, compressed(text).substr(0, 100))); }), cut,
                   "the results file", "cut off"));
  EXPECT_TRUE(says(sentence_of([&] { load_results(file(other, compressed("x\n"))); }), other + ":1", "name a file"));
}

TEST_P(Compressed, NothingIsAppendedToACompressedFile) {
  const std::string bytes = compressed(written(line_of("a")));
  for (const std::string& name : {"a.jsonl" + ending(), std::string("b.jsonl")}) {
    const auto path = file(name, bytes);
    EXPECT_TRUE(says(sentence_of([&] { ResultsFile results(path); }), name, "compressed", GetParam().unpacks));
    EXPECT_EQ(bytes_of(path), bytes);
  }
  const auto fresh = folder.path() / ("new.jsonl" + ending());
  EXPECT_TRUE(says(sentence_of([&] { ResultsFile results(fresh); }), fresh.string(), "without", ending()));
  EXPECT_FALSE(std::filesystem::exists(fresh));
}

TEST(CompressedByXz, MayBePaddedAsItsFormatSays) {
  const std::string padding(8, '\0');
  EXPECT_EQ(decompress(by_xz("a") + padding + by_xz("b") + padding, "it"), "ab");
  EXPECT_NE(sentence_of([&] { decompress(by_gzip("a") + padding, "it"); }), "") << "gzip has no such padding";
}

// A header that asks for a dictionary of 1 GiB, with its checksum.
TEST(CompressedByXz, TakesNoMoreMemoryThanItsStrongestPresetNeeds) {
  std::string bytes = by_xz("a");
  const std::size_t block = 12, filter = bytes.find("\x21\x01", block + 2);
  ASSERT_NE(filter, std::string::npos);
  const std::size_t header = 4 * std::size_t(bytes[block]);  // bytes, without the checksum
  ASSERT_EQ(bytes[filter + 2], 28) << "64 MiB";
  bytes[filter + 2] = 36;
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(bytes.data()) + block;
  std::uint32_t sum = lzma_crc32(begin, header, 0);
  for (std::size_t i = 0; i < 4; ++i, sum >>= 8) bytes[block + header + i] = char(sum & 0xff);
  EXPECT_TRUE(says(sentence_of([&] { decompress(bytes, "it"); }), "it takes more than 128 MiB of memory", "xz -9"));
}

}  // namespace
}  // namespace foretoken::test
