// GGUF files, whole and damaged: each fault is one sentence that names the file, the key or tensor, and the remedy.
#include "framework/model/gguf/gguf_file.h"

#include <gtest/gtest.h>

#include "tests/framework/model/gguf_bytes.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

// Two tensors of F32 and one of Q8_0: 32, 32 and 34 bytes.
GgufBytes small() {
  GgufBytes g;
  g.set("general.architecture", text_value("llama"));
  g.tensor("a", {4, 2}, 0, 0).tensor("b", {8}, 0, 32).tensor("q", {32, 1}, 8, 64);
  g.data = std::string(98, '\1');
  return g;
}

class GgufFiles : public testing::Test {
 protected:
  std::shared_ptr<const GgufFile> open(const std::string& bytes) {
    return GgufFile::open(folder_.write("m.gguf", bytes));
  }
  std::string refusal(const std::string& bytes) {
    return sentence_of([&] { open(bytes); });
  }
  TemporaryFolder folder_;
};

TEST_F(GgufFiles, AreReadWithoutCopies) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufBytes g = small();
    g.version = version;
    const auto file = open(g.bytes());
    ASSERT_EQ(file->tensors().size(), 3u);
    EXPECT_EQ(file->tensors().at("a").shape, (Shape{2, 4}));
    EXPECT_EQ(file->tensors().at("b").shape, (Shape{8}));
    EXPECT_EQ(file->tensors().at("q").type->name, std::string("Q8_0"));
    EXPECT_EQ(file->tensors().at("b").data - file->tensors().at("a").data, 32);
    EXPECT_EQ(file->tensors().at("q").bytes, 34u);
    EXPECT_EQ(std::string(file->tensors().at("q").data, 34), std::string(34, '\1'));
  }
}

TEST_F(GgufFiles, MetadataOfEveryTypeAreRead) {
  GgufBytes g = small();
  const std::pair<std::uint32_t, std::string> integers[] = {
      {0, bytes_of<std::uint8_t>(7)},   {1, bytes_of<std::int8_t>(7)},   {2, bytes_of<std::uint16_t>(7)},
      {3, bytes_of<std::int16_t>(7)},   {4, bytes_of<std::uint32_t>(7)}, {5, bytes_of<std::int32_t>(7)},
      {10, bytes_of<std::uint64_t>(7)}, {11, bytes_of<std::int64_t>(7)}};
  for (const auto& [type, value] : integers) {
    g.set("n" + std::to_string(type), bytes_of(type) + value);
    g.set("a" + std::to_string(type), array_value(type, {value, value}));
  }
  g.set("f32", f32_value(1.5f)).set("f64", bytes_of<std::uint32_t>(12) + bytes_of(2.5)).set("yes", bool_value(true));
  g.set("texts", texts_value({"x", "", "z"})).set("none", texts_value({}));
  const auto file = open(g.bytes());
  const GgufMetadata& m = file->metadata();
  for (const auto& [type, value] : integers) {
    EXPECT_EQ(m.integer("n" + std::to_string(type), 0, 9), 7) << type;
    EXPECT_EQ(m.integers("a" + std::to_string(type)), (std::vector<std::int64_t>{7, 7})) << type;
  }
  EXPECT_EQ(m.positive("f32"), 1.5);
  EXPECT_EQ(m.positive("f64"), 2.5);
  EXPECT_TRUE(m.boolean_or("yes", false));
  EXPECT_EQ(m.strings("texts"), (std::vector<std::string_view>{"x", "", "z"}));
  EXPECT_TRUE(m.strings("none").empty());
  EXPECT_EQ(m.string("general.architecture"), "llama");
}

TEST_F(GgufFiles, MetadataOfAnotherTypeThanNeeded) {
  const auto file = open(small()
                             .set("n", i32_value(-3))
                             .set("huge", bytes_of<std::uint32_t>(10) + bytes_of(UINT64_MAX))
                             .set("list", texts_value({"x"}))
                             .bytes());
  const GgufMetadata& m = file->metadata();
  const auto said = [&](auto body) { return sentence_of(body); };
  EXPECT_TRUE(says(said([&] { m.integer("n", 0, 9); }), "m.gguf", "'n' is -3, but must be an integer from 0 to 9"));
  EXPECT_TRUE(says(said([&] { m.integer("huge", 0, 9); }), "'huge' is 18446744073709551615"));
  EXPECT_TRUE(says(said([&] { m.integer("list", 0, 9); }), "'list' is an array of 1 element, but must be an integer"));
  EXPECT_TRUE(says(said([&] { m.positive("n"); }), "must be a number above 0"));
  EXPECT_TRUE(says(said([&] { m.string("n"); }), "must be a string"));
  EXPECT_TRUE(says(said([&] { m.boolean_or("n", false); }), "must be true or false"));
  EXPECT_TRUE(says(said([&] { m.strings("n"); }), "must be an array of strings"));
  EXPECT_TRUE(says(said([&] { m.integers("list"); }), "must be an array of integers"));
  EXPECT_TRUE(says(said([&] { m.numbers("list"); }), "must be an array of numbers"));
  EXPECT_TRUE(says(said([&] { m.string("gone"); }), "has no metadata 'gone'", "convert"));
}

TEST_F(GgufFiles, OfAnotherKind) {
  GgufBytes g = small();
  g.magic = "GGML";
  EXPECT_TRUE(says(refusal(g.bytes()), "m.gguf is not a GGUF file", "config.json"));
  EXPECT_TRUE(says(refusal("GG"), "is not a GGUF file"));
  EXPECT_TRUE(says(refusal(""), "is empty"));
  EXPECT_TRUE(says(refusal("version https://git-lfs.github.com/spec/v1\n"), "is a Git LFS pointer"));
  for (const std::uint32_t version : {0u, 1u, 4u}) {
    g = small(), g.version = version;
    EXPECT_TRUE(says(refusal(g.bytes()), "has GGUF version " + std::to_string(version), "versions 2 and 3"));
  }
  g.version = 3u << 24;
  EXPECT_TRUE(says(refusal(g.bytes()), "is big-endian"));
  EXPECT_TRUE(says(refusal(small().set("split.count", u32_value(3)).bytes()), "'split.count' is 3", "merge the parts"));
  EXPECT_EQ(refusal(small().set("split.count", u32_value(1)).bytes()), "");
  EXPECT_TRUE(
      says(refusal(small().set("general.type", text_value("adapter")).bytes()), "'general.type' is \"adapter\""));
  EXPECT_TRUE(says(refusal(small().set("general.quantization_version", u32_value(1)).bytes()),
                   "'general.quantization_version' is 1, but 2 is supported"));
}

TEST_F(GgufFiles, FaultyMetadata) {
  GgufBytes g = small();
  g.metadata.push_back(g.metadata.front());
  EXPECT_TRUE(says(refusal(g.bytes()), "has the metadata 'general.architecture' twice"));
  EXPECT_TRUE(says(refusal(small().set("k", bytes_of<std::uint32_t>(13)).bytes()), "'k' has the unknown type 13"));
  EXPECT_TRUE(says(refusal(small().set("k", array_value(13, {})).bytes()), "'k' has the unknown type 13"));
  EXPECT_TRUE(says(refusal(small().set("k", array_value(9, {})).bytes()), "'k' is an array of arrays"));
  for (const std::uint64_t count : {std::uint64_t(1) << 40, UINT64_MAX, UINT64_MAX / 4 + 2})
    for (const std::uint32_t type : {0u, 4u, 8u, 12u})
      EXPECT_TRUE(says(refusal(small().set("k", bytes_of<std::uint32_t>(9) + bytes_of(type) + bytes_of(count)).bytes()),
                       "m.gguf"))
          << count << " of type " << type;
  EXPECT_TRUE(says(refusal(small().set("k", bytes_of<std::uint32_t>(8) + bytes_of(UINT64_MAX)).bytes()),
                   "is truncated or damaged: a metadata string", "18446744073709551615 bytes", "download it again"));
}

TEST_F(GgufFiles, FaultyTensors) {
  const auto with = [&](const std::vector<std::uint64_t>& dims, std::uint32_t type, std::uint64_t offset) {
    return refusal(small().tensor("x", dims, type, offset).bytes());
  };
  EXPECT_TRUE(says(with({32}, 99, 0), "tensor 'x' has the type number 99, which is not supported", "Q4_K"));
  EXPECT_TRUE(says(with({256}, 10, 0), "tensor 'x' has the type Q2_K, which is not supported; quantize the model"));
  EXPECT_TRUE(says(with({48}, 8, 0), "has rows of 48, but the blocks of Q8_0 have 32"));
  EXPECT_TRUE(says(with({}, 0, 0), "has 0 dimensions"));
  EXPECT_TRUE(says(with({1, 1, 1, 1, 1}, 0, 0), "has 5 dimensions"));
  EXPECT_TRUE(says(with({0, 4}, 0, 0), "has a dimension of 0"));
  EXPECT_TRUE(says(with({1ull << 32, 1ull << 32}, 0, 0), "has a dimension of 4294967296"));
  EXPECT_TRUE(says(with({UINT64_MAX}, 0, 0), "has a dimension of 18446744073709551615"));
  EXPECT_TRUE(says(with({1ull << 40}, 0, 0), "is truncated: tensor 'x' has 4398046511104 bytes at byte 0"));
  EXPECT_TRUE(
      says(with({8}, 0, 96), "is truncated: tensor 'x' has 32 bytes at byte 96 of the data, but the data has 98"));
  EXPECT_TRUE(says(with({8}, 0, UINT64_MAX - 31), "is truncated: tensor 'x'"));
  EXPECT_TRUE(says(with({1}, 0, 40), "begins at byte 40 of the data, which is no multiple of 32"));
  EXPECT_TRUE(says(with({8}, 0, 32), "tensor '", "overlaps tensor '"));
  EXPECT_TRUE(says(refusal(small().tensor("a", {1}, 0, 96).bytes()), "tensor 'a' occurs twice"));
  // F32 that a damaged type or dimension makes half as long, or shorter than it is.
  const std::string numbers(256, '\1');
  EXPECT_EQ(refusal(small().append("x", {64}, 0, numbers).append("y", {8}, 0, numbers.substr(0, 32)).bytes()), "");
  EXPECT_TRUE(says(refusal(small().append("x", {64}, 1, numbers).append("y", {8}, 0, numbers.substr(0, 32)).bytes()),
                   "is damaged: tensor 'y' begins 128 bytes behind tensor 'x'; download it again"));
  EXPECT_TRUE(says(refusal(small().append("x", {32}, 0, numbers).bytes()),
                   "is damaged: 128 bytes follow its last tensor, 'x'"));
  EXPECT_TRUE(says(refusal(GgufBytes(small()).set("general.alignment", u32_value(8)).tensor("x", {2}, 0, 8).bytes()),
                   "overlaps"));
  GgufBytes g = small();
  ++g.tensor_count;
  g.data.clear();
  EXPECT_TRUE(says(refusal(g.bytes()), "is truncated or damaged"));
}

TEST_F(GgufFiles, AreAlignedAsTheySay) {
  GgufBytes g = small().set("general.alignment", u32_value(64));
  g.alignment = 64;
  EXPECT_TRUE(says(refusal(g.bytes()), "tensor 'b' begins at byte 32 of the data, which is no multiple of 64"));
  for (const std::uint32_t alignment : {0u, 4u, 48u, 1u << 20})
    EXPECT_TRUE(says(refusal(small().set("general.alignment", u32_value(alignment)).bytes()), "'general.alignment'"))
        << alignment;
}

TEST_F(GgufFiles, AnyTruncationIsRefused) {
  const std::string whole = small().bytes();
  ASSERT_EQ(refusal(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_TRUE(says(refusal(whole.substr(0, size)), "m.gguf")) << size;
}

TEST_F(GgufFiles, AnyDamagedByteIsReadOrRefused) {
  const std::string whole = small().set("list", texts_value({"x", "y"})).bytes();
  for (std::size_t at = 0; at < whole.size() - 98; ++at)
    for (const char byte : {'\0', '\1', '\x7f', '\xff'}) {
      std::string damaged = whole;
      damaged[at] = byte;
      EXPECT_NO_THROW(sentence_of([&] {
        const auto file = open(damaged);
        const char *begin = file->mapping()->data(), *end = begin + damaged.size();
        for (const auto& [name, t] : file->tensors()) EXPECT_TRUE(begin < t.data && t.data + t.bytes <= end);
      })) << at;
    }
}

}  // namespace
}  // namespace foretoken::test
