// Every kind of faulty checkpoint is an Error whose message names the fault and the remedy.
#include "framework/model/checkpoint.h"

#include <cstring>

#include <gtest/gtest.h>

#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

class CheckpointFile : public testing::Test {
 protected:
  // The message of opening a file with these bytes.
  std::string open(const std::string& bytes) {
    folder_.write("model.safetensors", bytes);
    return sentence_of([&] { Checkpoint::open(folder_.path()); });
  }
  std::string open(const std::string& header, const std::string& data) {
    return open(file_of("{" + header + "}", data));
  }
  TemporaryFolder folder_;
};

TEST_F(CheckpointFile, ReadsEveryDtypeFromTheMappingWhichItsTensorsKeepAlive) {
  std::string data(48, '\0');
  const float f[2] = {1.5f, -2.0f};
  std::memcpy(data.data(), f, 8);
  const std::int64_t i = -7;
  std::memcpy(data.data() + 16, &i, 8);
  data[42] = 'x';
  const auto file =
      folder_.write("m.safetensors",
                    file_of("{\"__metadata__\":{\"format\":\"pt\"}," + entry("f", "F32", "[1,2]", "[0,8]") + "," +
                                entry("h", "F16", "[2]", "[8,12]") + "," + entry("b", "BF16", "[2,1]", "[12,16]") +
                                "," + entry("l", "I64", "[]", "[16,24]") + "," + entry("i", "I32", "[4]", "[24,40]") +
                                "," + entry("e", "F32", "[0,3]", "[40,40]") + "," + entry("c", "I8", "[2]", "[40,42]") +
                                "," + entry("u", "U8", "[1,2,3,1]", "[42,48]") + "}      ",
                            data));
  Tensor kept;
  {
    const Checkpoint c = Checkpoint::open_file(file);
    EXPECT_EQ(c.names().size(), 8u);
    EXPECT_EQ(c.tensor("f", {1, 2}).values<float>()[0], 1.5f);
    EXPECT_EQ(*c.tensor("l", {}).data<std::int64_t>(), -7);
    EXPECT_EQ(c.tensor("h").dtype(), DType::f16);
    EXPECT_EQ(c.tensor("b").dtype(), DType::bf16);
    EXPECT_EQ(c.tensor("e").elements(), 0);
    EXPECT_EQ(c.tensor("c").dtype(), DType::i8);
    EXPECT_TRUE(c.has("i") && !c.has("j"));
    EXPECT_EQ(c.tensor("f").raw(), c.tensor("f").raw());
    kept = c.tensor("u", {1, 2, 3, 1});
  }
  EXPECT_EQ(kept.values<std::uint8_t>()[0], 'x');
}

TEST_F(CheckpointFile, CopiesUnalignedTensors) {
  std::string data(9, '\0');
  const float f[2] = {3.25f, 4.5f};
  std::memcpy(data.data() + 1, f, 8);
  std::string header = "{" + entry("u", "U8", "[1]", "[0,1]") + "," + entry("f", "F32", "[2]", "[1,9]") + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const Tensor t = Checkpoint::open_file(folder_.write("m.safetensors", file_of(header, data))).tensor("f");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.raw()) % 4, 0u);
  EXPECT_EQ(t.values<float>()[1], 4.5f);
}

TEST_F(CheckpointFile, ATensorThatIsMissingOrHasAnotherShape) {
  const auto file =
      folder_.write("m.safetensors", file_of("{" + entry("f", "F32", "[1,2]", "[0,8]") + "}", std::string(8, '\0')));
  const Checkpoint c = Checkpoint::open_file(file);
  EXPECT_TRUE(says(sentence_of([&] { c.tensor("g"); }), file.string(), "has no tensor 'g'", "download"));
  EXPECT_TRUE(says(sentence_of([&] { c.tensor("f", {2, 1}); }),
                   "tensor 'f' has the shape [1, 2], but config.json requires [2, 1]", "download"));
}

TEST_F(CheckpointFile, Truncation) {
  EXPECT_TRUE(says(open(""), "model.safetensors is empty; download it again"));
  EXPECT_TRUE(says(open("abc"), "is truncated: it has only 3 bytes; download it again"));
  const std::string whole = file_of("{" + entry("x", "F32", "[2]", "[0,8]") + "}", std::string(8, '\0'));
  const std::string n = std::to_string(whole.size());
  EXPECT_EQ(open(whole), "");
  for (std::size_t cut = 1; cut <= 8; ++cut)
    EXPECT_TRUE(says(open(whole.substr(0, whole.size() - cut)),
                     "model.safetensors is truncated: tensor 'x' ends at byte " + n + " but the file has " +
                         std::to_string(whole.size() - cut) + "; download it again"));
  for (std::size_t length = 8; length < whole.size() - 8; ++length)
    EXPECT_TRUE(says(open(whole.substr(0, length)),
                     "is truncated: its header ends at byte " + std::to_string(whole.size() - 8)));
  EXPECT_TRUE(says(open(whole + "!"), "1 bytes after the last tensor belong to none"));
}

TEST_F(CheckpointFile, FaultyHeaders) {
  const std::string eight(8, '\0');
  const auto one = [&](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return open(entry("x", dtype, shape, offsets), eight);
  };
  EXPECT_TRUE(says(one("F32", "[3]", "[0,8]"),
                   "tensor 'x' of shape [3] and dtype F32 needs 12 bytes, but its data_offsets span 8"));
  EXPECT_TRUE(says(one("F32", "[2]", "[8,0]"), "ends at byte 0 before it begins at 8"));
  EXPECT_TRUE(says(one("F32", "[2]", "[-8,0]"), "has the data_offsets [-8,0]"));
  EXPECT_TRUE(says(one("F32", "[2]", "[0,8,8]"), "has the data_offsets [0,8,8]"));
  EXPECT_TRUE(says(one("F32", "[2]", "[18446744073709551608,18446744073709551615]"),
                   "needs 8 bytes, but its data_offsets span 7"));
  EXPECT_TRUE(says(one("F32", "[2]", "[18446744073709551600,18446744073709551608]"),
                   "is truncated: tensor 'x' ends at byte 18446744073709551608"));
  EXPECT_TRUE(says(one("F32", "[4294967296,4294967296]", "[0,8]"), "has the shape [4294967296,4294967296]"));
  EXPECT_TRUE(says(one("F32", "[18446744073709551615]", "[0,8]"), "has the shape"));
  EXPECT_TRUE(says(one("F32", "[-2]", "[0,8]"), "has the shape [-2]"));
  EXPECT_TRUE(says(one("F32", "[2.0]", "[0,8]"), "has the shape [2.0]"));
  EXPECT_TRUE(says(one("F32", "2", "[0,8]"), "'tensor 'x'.shape' is 2, but must be an array"));
  EXPECT_TRUE(says(one("F32", "[1,1,1,1,2]", "[0,8]"), "has 5 dimensions; at most 4 are supported"));
  EXPECT_TRUE(says(one("F64", "[1]", "[0,8]"), "has the dtype 'F64', which is not supported", "convert it"));
  EXPECT_TRUE(says(one("F33", "[1]", "[0,8]"), "has the dtype 'F33', which is not supported"));
  EXPECT_TRUE(says(open("\"x\":7", eight), "tensor 'x' is 7, but must be a JSON object"));
  EXPECT_TRUE(says(open("\"x\":{\"shape\":[2],\"data_offsets\":[0,8]}", eight), "has no 'tensor 'x'.dtype'"));
  EXPECT_TRUE(says(open(file_of("[]", "")), "must be a JSON object"));
  EXPECT_TRUE(says(open(file_of("{\"x\":", "")), "is not valid JSON"));
}

TEST_F(CheckpointFile, TensorsThatShareOrSkipBytes) {
  const std::string twelve(12, '\0');
  EXPECT_TRUE(says(open(entry("x", "F32", "[2]", "[0,8]") + "," + entry("y", "F32", "[2]", "[4,12]"), twelve),
                   "tensor 'y' overlaps tensor 'x'"));
  EXPECT_TRUE(
      says(open(entry("x", "F32", "[3]", "[0,12]") + "," + entry("y", "F32", "[3]", "[0,12]"), twelve), "overlaps"));
  EXPECT_TRUE(says(open(entry("x", "F32", "[1]", "[0,4]") + "," + entry("y", "F32", "[1]", "[8,12]"), twelve),
                   "tensor 'y' leaves a hole of 4 bytes before it"));
  EXPECT_TRUE(says(open(entry("x", "F32", "[1]", "[0,4]") + "," + entry("x", "F32", "[2]", "[4,12]"), twelve),
                   "has the key 'x' twice"));
}

TEST_F(CheckpointFile, AnyDamagedByteIsReadOrRefused) {
  const std::string whole = file_of(
      "{" + entry("x", "F32", "[1,2]", "[0,8]") + "," + entry("y", "U8", "[4]", "[8,12]") + "}", std::string(12, '\0'));
  for (std::size_t at = 0; at < whole.size() - 12; ++at)
    for (const char byte : {'\0', '"', '9', '-', ']', '}', '\xff'}) {
      std::string damaged = whole;
      damaged[at] = byte;
      const auto file = folder_.write("m.safetensors", damaged);
      EXPECT_NO_THROW(sentence_of([&] {
        const Checkpoint c = Checkpoint::open_file(file);
        for (const std::string& name : c.names()) {
          const Tensor t = c.tensor(name);
          EXPECT_TRUE(std::string(std::size_t(t.bytes()), '\0') ==
                      std::string_view(t.data<char>(), std::size_t(t.bytes())));
        }
      })) << at;
    }
}

TEST_F(CheckpointFile, FilesThatAreNoCheckpoints) {
  std::string huge = file_of("{}", "");
  huge[5] = 1;
  EXPECT_TRUE(says(open(huge), "its header would have 1099511627778 bytes", "download it again"));
  EXPECT_TRUE(says(open(std::string(8, '\xff') + "{}"), "its header would have 18446744073709551615 bytes"));
  EXPECT_TRUE(says(open("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"), "git lfs pull"));
  EXPECT_TRUE(says(sentence_of([&] { Checkpoint::open_file(folder_.path()); }), "is not a regular file"));
  EXPECT_TRUE(says(sentence_of([&] { Checkpoint::open_file(folder_.path() / "gone"); }), "cannot be opened"));
}

TEST(CheckpointFolder, NamesWhatIsMissing) {
  TemporaryFolder folder;
  EXPECT_TRUE(says(sentence_of([&] { Checkpoint::open(folder.path() / "gone"); }), "does not exist"));
  EXPECT_TRUE(says(sentence_of([&] { Checkpoint::open(folder.path()); }),
                   "holds neither model.safetensors nor model.safetensors.index.json"));
  folder.write("pytorch_model.bin", "x");
  EXPECT_TRUE(says(sentence_of([&] { Checkpoint::open(folder.path()); }),
                   "holds pytorch_model.bin but no model.safetensors; convert it"));
}

class Shards : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("a.safetensors", file_of("{" + entry("x", "U8", "[1]", "[0,1]") + "}", "1"));
    folder_.write("b.safetensors", file_of("{" + entry("y", "U8", "[1]", "[0,1]") + "}", "2"));
  }
  std::string open(const std::string& map) {
    folder_.write("model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":" + map + "}");
    return sentence_of([&] { Checkpoint::open(folder_.path()); });
  }
  TemporaryFolder folder_;
};

TEST_F(Shards, AreReadThroughTheIndex) {
  EXPECT_EQ(open(R"({"x":"a.safetensors","y":"b.safetensors"})"), "");
  const Checkpoint c = Checkpoint::open(folder_.path());
  EXPECT_EQ(c.tensor("y", {1}).values<std::uint8_t>()[0], '2');
  EXPECT_EQ(c.names(), (std::vector<std::string>{"x", "y"}));
}

TEST_F(Shards, AFaultyIndex) {
  EXPECT_TRUE(says(open(R"({"x":"a.safetensors","y":"c.safetensors"})"), "c.safetensors is missing",
                   "for tensor 'y'; download it"));
  EXPECT_TRUE(says(open(R"({"x":"a.safetensors","z":"b.safetensors"})"),
                   "says that tensor 'z' is in b.safetensors, but that file does not hold it; download both again"));
  EXPECT_TRUE(says(open(R"({"x":"../a.safetensors"})"), "must be the name of a file beside the index"));
  EXPECT_TRUE(says(open(R"({"x":1})"), "'weight_map.x' is 1, but must be the name of a file"));
  EXPECT_TRUE(says(open(R"({"x":"a.safetensors","x":"b.safetensors"})"), "has the key 'x' twice"));
  EXPECT_TRUE(says(open("{}"), "names no tensor"));
  EXPECT_TRUE(says(open("7"), "weight_map is 7, but must be a JSON object"));
}

TEST(SharedVectors, SafetensorsOfOthers) {
  const auto data = shared_data() / "vectors" / "safetensors";
  if (!std::filesystem::is_directory(data))
    GTEST_SKIP() << "no shared data (FORETOKEN_DATA): files written by other programs are not read";
  EXPECT_EQ(Checkpoint::open_file(data / "test.safetensors").tensor("key_0").shape(), (Shape{10, 10}));
  EXPECT_EQ(Checkpoint::open_file(data / "tensor-4d-float32.safetensors").tensor("embedding").shape(),
            (Shape{2, 3, 1, 3}));
  EXPECT_EQ(Checkpoint::open_file(data / "tensor-3d-float32.safetensors").tensor("embedding").dtype(), DType::f32);
  EXPECT_EQ(
      Checkpoint::open_file(data / "tensor-1d-int32.safetensors").tensor("embedding").values<std::int32_t>().size(),
      3u);
  EXPECT_TRUE(says(sentence_of([&] { Checkpoint::open_file(data / "tensor-2d-float64.safetensors"); }), "dtype 'F64'"));
}

}  // namespace
}  // namespace foretoken::test
