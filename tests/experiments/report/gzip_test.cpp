// Compressed results: read like plain ones whatever their name, refused where they are damaged, never appended to.
#include "experiments/report/gzip.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/experiments/report/results_files.h"

namespace foretoken::test {
namespace {

std::string compressed(const std::string& text) {
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

class Gzip : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder.path() / name, std::ios::binary) << bytes;
    return folder.path() / name;
  }
  TemporaryFolder folder;
};

TEST_F(Gzip, GivesTheTextBack) {
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += std::to_string(i) + (i % 7 ? "," : "\n");  // longer than a piece
  EXPECT_EQ(gunzip(compressed(text), "it"), text);
  EXPECT_EQ(gunzip(compressed(""), "it"), "");
  EXPECT_EQ(gunzip(compressed("a") + compressed("") + compressed("b\n"), "it"), "ab\n") << "as cat joins files";
  EXPECT_TRUE(is_gzip(compressed("a")));
  for (const char* text_itself : {"", "{", "\x1f"}) EXPECT_FALSE(is_gzip(text_itself));
}

TEST_F(Gzip, WhatIsDamagedIsOneSentence) {
  const std::string whole = compressed(written(line_of("a")));
  for (std::size_t size = 2; size < whole.size(); ++size)
    ASSERT_TRUE(says(sentence_of([&] { gunzip(whole.substr(0, size), "it"); }), "it is cut off", "copy it again"))
        << size;
  std::string flipped = whole;
  flipped[flipped.size() - 5] ^= 1;  // of the checksum
  EXPECT_TRUE(says(sentence_of([&] { gunzip(flipped, "it"); }), "it is damaged", "copy it again"));
  flipped = whole, flipped[2] = 9;  // an unknown method
  EXPECT_TRUE(says(sentence_of([&] { gunzip(flipped, "it"); }), "it is damaged"));
  for (const std::string& tail : {std::string("x"), std::string(4, '\0'), std::string("\x1f")})
    EXPECT_TRUE(says(sentence_of([&] { gunzip(whole + tail, "it"); }), "it has other bytes after", "gzip"));
}

TEST_F(Gzip, WhatUnpacksToTooMuchIsNotUnpacked) {
  const std::string bomb = compressed(std::string(64 << 20, ' '));
  EXPECT_LT(bomb.size(), 1u << 17);
  EXPECT_TRUE(says(sentence_of([&] { gunzip(bomb, "it", 2 << 20); }), "it unpacks to more than 2 MiB", "gunzip"));
  EXPECT_EQ(gunzip(bomb, "it", 64 << 20).size(), 64u << 20);
}

TEST_F(Gzip, ResultsAreReadLikePlainOnes) {
  const std::string text = written(line_of("a")) + written(line_of("b"));
  const auto plain = load_results(file("a.jsonl", text));
  EXPECT_EQ(load_results(file("a.jsonl.gz", compressed(text))), plain);
  EXPECT_EQ(load_results(file("b.jsonl", compressed(text))), plain) << "by its bytes, not its name";
  EXPECT_EQ(load_results(file("c.gz", text)), plain);
  EXPECT_TRUE(says(sentence_of([&] { load_results(file("d.gz", compressed(text).substr(0, 100))); }), "d.gz",
                   "the results file", "cut off"));
  EXPECT_TRUE(says(sentence_of([&] { load_results(file("e.gz", compressed("x\n"))); }), "e.gz:1", "name a file"));
}

TEST_F(Gzip, NothingIsAppendedToACompressedFile) {
  const std::string bytes = compressed(written(line_of("a")));
  for (const char* name : {"a.jsonl.gz", "b.jsonl"}) {
    const auto path = file(name, bytes);
    EXPECT_TRUE(says(sentence_of([&] { ResultsFile results(path); }), name, "compressed", "gunzip"));
    EXPECT_EQ(bytes_of(path), bytes);
  }
  const auto fresh = folder.path() / "new.jsonl.gz";
  EXPECT_TRUE(says(sentence_of([&] { ResultsFile results(fresh); }), "new.jsonl.gz", "without .gz"));
  EXPECT_FALSE(std::filesystem::exists(fresh));
}

}  // namespace
}  // namespace foretoken::test
