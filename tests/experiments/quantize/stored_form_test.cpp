// What is stored of a matrix decodes, by the rules of the published forms written out here, to the numbers that its
// format means.
#include "experiments/quantize/stored_form.h"

#include <cmath>
#include <cstring>

#include "framework/model/convert.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

Weight some_matrix(const std::string& format, std::int64_t out, std::int64_t in) {
  const Tensor t = Tensor::host({out, in}, DType::f32);
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const std::int64_t row = i / in;  // rows differ
    t.data<float>()[i] = float((std::sin(0.7 * double(i * i % 1009)) + 0.1) * double(1 + row));
  }
  std::memset(t.row<float>(1), 0, 64 * sizeof(float));  // a group of zeros
  return quantize(Weight::dense(t), *find_format(format));
}

std::map<std::string, StoredTensor> by_name(const std::vector<StoredTensor>& tensors) {
  std::map<std::string, StoredTensor> all;
  for (const StoredTensor& t : tensors) all[t.name] = t;
  return all;
}

float bf16_product(float a, float b) { return float(bf16(a * b)); }

// Every number of `w` is what `number(o, i)` says.
template <class Number> void expect_numbers(const Weight& w, const Number& number) {
  std::vector<float> row(static_cast<std::size_t>(w.in));
  for (std::int64_t o = 0; o < w.out; ++o) {
    decode_row(w, o, row);
    for (std::int64_t i = 0; i < w.in; ++i)
      ASSERT_EQ(number(o, i), row[std::size_t(i)]) << w.format->name() << " [" << o << ", " << i << "]";
  }
}

// The element of `bits` bits at place i of a row of 32-bit words: bit by bit.
int element(const std::int32_t* words, std::int64_t i, int bits) {
  int value = 0;
  for (int b = 0; b < bits; ++b) {
    const std::int64_t at = i * bits + b;
    value |= int(std::uint32_t(words[at / 32]) >> at % 32 & 1u) << b;
  }
  return value;
}

TEST(StoredForm, PacksIntegersInWords) {
  for (const auto& [format, bits] :
       std::map<std::string, int>{{"int4", 4}, {"int5", 5}, {"int6", 6}, {"int8_group", 8}, {"int4_asymmetric", 4}}) {
    const Weight w = some_matrix(format, 12, 256);
    const auto stored = by_name(stored_form(format).tensors("m", w));
    const Tensor words = stored.at("m.weight_packed").values, scales = stored.at("m.weight_scale").values;
    EXPECT_EQ(words.shape(), (Shape{12, 256 * bits / 32}));
    EXPECT_EQ(scales.shape(), (Shape{12, 2}));
    EXPECT_EQ(stored.at("m.weight_scale").type, "BF16");
    const Tensor shape = stored.at("m.weight_shape").values;
    EXPECT_EQ(shape.data<std::int64_t>()[0], 12);
    EXPECT_EQ(shape.data<std::int64_t>()[1], 256);
    const int half = 1 << (bits - 1);
    const bool asymmetric = format == "int4_asymmetric";
    ASSERT_EQ(stored.contains("m.weight_zero_point"), asymmetric);
    bool somewhere = false;
    const auto zero = [&](std::int64_t o, std::int64_t g) {
      if (!asymmetric) return 0;
      const Tensor zeros = stored.at("m.weight_zero_point").values;  // [2, 2]: eight outputs in a word
      std::vector<std::int32_t> column;
      for (std::int64_t word = 0; word < zeros.dim(0); ++word) column.push_back(zeros.row<std::int32_t>(word)[g]);
      return element(column.data(), o, bits) - half;
    };
    expect_numbers(w, [&](std::int64_t o, std::int64_t i) {
      const int z = zero(o, i / 128);
      somewhere |= z != 0;
      return bf16_product(float(scales.row<bf16>(o)[i / 128]),
                          float(element(words.row<std::int32_t>(o), i, bits) - half - z));
    });
    EXPECT_EQ(somewhere, asymmetric);
  }
}

TEST(StoredForm, StoresEightBitsAsBytes) {
  const Weight w = some_matrix("int8", 12, 256);
  const auto stored = by_name(stored_form("int8").tensors("m", w));
  EXPECT_EQ(stored.at("m.weight").type, "I8");
  const Tensor scales = stored.at("m.weight_scale").values;
  EXPECT_EQ(scales.shape(), (Shape{12, 1}));
  expect_numbers(w, [&](std::int64_t o, std::int64_t i) {
    return bf16_product(float(scales.row<bf16>(o)[0]), float(stored.at("m.weight").values.row<std::int8_t>(o)[i]));
  });
}

TEST(StoredForm, StoresFloatsWithTheirScales) {
  const std::map<std::string, Shape> shapes = {{"fp8", {130, 1}}, {"fp8_tensor", {1}}, {"fp8_block", {2, 2}}};
  for (const auto& [format, shape] : shapes) {
    const Weight w = some_matrix(format, 130, 256);
    const auto stored = by_name(stored_form(format).tensors("m", w));
    EXPECT_EQ(stored.at("m.weight").type, "F8_E4M3");
    const Tensor scales = stored.at("m.weight_scale").values;
    EXPECT_EQ(scales.shape(), shape);
    const bool block = format == "fp8_block", tensor = format == "fp8_tensor";
    expect_numbers(w, [&](std::int64_t o, std::int64_t i) {
      const int code = stored.at("m.weight").values.row<std::uint8_t>(o)[i], exponent = code >> 3 & 15, m = code & 7;
      const float magnitude =
          exponent ? std::ldexp(float(8 + m), exponent - 10) : std::ldexp(float(m), -9);  // OFP8 e4m3
      const float scale = scales.data<float>()[tensor ? 0 : block ? o / 128 * 2 + i / 128 : o];
      return bf16_product(scale, code & 0x80 ? -magnitude : magnitude);
    });
  }
}

TEST(StoredForm, StoresMicroscaledHalves) {
  const Weight w = some_matrix("mxfp4", 12, 256);
  const auto stored = by_name(stored_form("mxfp4").tensors("m", w));
  const Tensor halves = stored.at("m.weight_packed").values, scales = stored.at("m.weight_scale").values;
  EXPECT_EQ(halves.shape(), (Shape{12, 128}));
  EXPECT_EQ(scales.shape(), (Shape{12, 8}));
  constexpr float kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  expect_numbers(w, [&](std::int64_t o, std::int64_t i) {
    const int code = halves.row<std::uint8_t>(o)[i / 2] >> (i % 2 ? 4 : 0) & 15;
    const float scale = std::ldexp(1.0f, int(scales.row<std::uint8_t>(o)[i / 32]) - 127);
    return bf16_product(scale, (code & 8 ? -1 : 1) * kNumbers[code & 7]);
  });
}

TEST(StoredForm, StoresTablesAsBitsandbytes) {
  for (const std::string format : {"nf4", "fp4"}) {
    const Weight w = some_matrix(format, 12, 256);
    const auto stored = by_name(stored_form(format).tensors("m", w));
    const Tensor halves = stored.at("m.weight").values, scales = stored.at("m.weight.absmax").values,
                 map = stored.at("m.weight.quant_map").values;
    EXPECT_EQ(halves.shape(), (Shape{12 * 256 / 2, 1}));
    EXPECT_EQ(scales.shape(), Shape{12 * 256 / 64});
    EXPECT_EQ(map.shape(), Shape{16});
    expect_numbers(w, [&](std::int64_t o, std::int64_t i) {
      const std::int64_t at = o * 256 + i;
      const int code = halves.data<std::uint8_t>()[at / 2] >> (at % 2 ? 0 : 4) & 15;
      return bf16_product(scales.data<float>()[at / 64], map.data<float>()[code]);
    });
    const Tensor state = stored.at("m.weight.quant_state.bitsandbytes__" + format).values;
    const auto parsed = nlohmann::json::parse(std::string(state.data<char>(), std::size_t(state.bytes())));
    EXPECT_EQ(parsed["shape"], (nlohmann::json{12, 256}));
    EXPECT_EQ(parsed["blocksize"], 64);
  }
  const Weight narrow = some_matrix("nf4", 12, 96);  // groups of 32
  EXPECT_TRUE(says(sentence_of([&] { (void)stored_form("nf4").tensors("a.b", narrow); }), "a.b", "96", "64"));
}

// One group where all matrices have groups of one size, else one for each, which names its modules.
TEST(StoredForm, SaysWhichModulesHaveWhichGroups) {
  const auto one = stored_form("int4").config({{"a", 128}, {"b", 128}}),
             two = stored_form("int4").config({{"a", 128}, {"b", 64}}),
             rows = stored_form("int8").config({{"a", 128}, {"b", 64}});
  EXPECT_EQ(one["config_groups"].size(), 1u);
  EXPECT_EQ(one["config_groups"]["group_0"]["targets"], nlohmann::json({"Linear"}));
  EXPECT_EQ(one["config_groups"]["group_0"]["weights"]["group_size"], 128);
  EXPECT_EQ(two["config_groups"].size(), 2u);
  EXPECT_EQ(two["config_groups"]["group_0"]["targets"], nlohmann::json({"b"}));
  EXPECT_EQ(two["config_groups"]["group_0"]["weights"]["group_size"], 64);
  EXPECT_EQ(two["config_groups"]["group_1"]["targets"], nlohmann::json({"a"}));
  EXPECT_EQ(rows["config_groups"].size(), 1u);
}

TEST(StoredForm, SaysHowInputsAndColumnsWereTreated) {
  const auto plain = stored_form("int8").config({{"a", 128}}),
             both = stored_form("int8").config({{"a", 128}}, {true, true});
  EXPECT_TRUE(plain["config_groups"]["group_0"]["input_activations"].is_null());
  EXPECT_TRUE(plain["config_groups"]["group_0"]["weights"]["actorder"].is_null());
  const nlohmann::json inputs = {
      {"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"dynamic", true}, {"strategy", "token"}};
  EXPECT_EQ(both["config_groups"]["group_0"]["input_activations"], inputs);
  EXPECT_EQ(both["config_groups"]["group_0"]["weights"]["actorder"], "static");
}

TEST(StoredForm, OfEveryFormatOrRefusedByName) {
  for (const WeightFormat* f : weight_formats()) EXPECT_NO_THROW((void)stored_form(f->name())) << f->name();
  EXPECT_TRUE(says(sentence_of([] { (void)stored_form("int3"); }), "int3", "int4", "nf4"));
}

}  // namespace
}  // namespace foretoken::test
