// A directory of a test for quantized checkpoints, and what tests look for in them.
#pragma once
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "experiments/quantize/quantize.h"
#include "experiments/quantize/safetensors_file.h"
#include "framework/model/checkpoint.h"
#include "framework/model/safetensors.h"
#include "framework/text/json_file.h"
#include "tests/support/sentence.h"

namespace foretoken::test {

namespace fs = std::filesystem;

inline const fs::path kModels = fs::path(FORETOKEN_SOURCE_DIR) / "tests" / "data" / "models";

class Quantized : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(here_); }
  void TearDown() override { fs::remove_all(here_); }

  QuantizeOptions options(const std::string& model, const std::string& format) const {
    QuantizeOptions o;
    o.model = kModels / model, o.format = format, o.out = here_ / "out";
    return o;
  }
  std::vector<LayerError> quantize(const QuantizeOptions& o) const {
    return quantize_checkpoint(o, [](int, int) {});
  }

  fs::path here_ = fs::temp_directory_path() /
                   ("foretoken_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
};

// All tensors of a directory, by its index.
inline std::map<std::string, Tensor> tensors_in(const fs::path& directory) {
  const auto index = read_json(directory / "model.safetensors.index.json");
  std::map<std::string, Tensor> all;
  for (const auto& [name, file] : index["weight_map"].items())
    all[name] = map_safetensors(directory / file.get<std::string>()).at(name);
  return all;
}

// A copy of a model in one file, each tensor as `change` makes it of a copy.
inline void copy_model(const fs::path& from, const fs::path& to,
                       const std::function<Tensor(const std::string& name, const Tensor& copy)>& change) {
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(from))
    if (entry.path().extension() != ".safetensors") fs::copy(entry.path(), to);
  const Checkpoint source = Checkpoint::open(from);
  std::vector<StoredTensor> tensors;
  for (const std::string& name : source.names()) {
    const Tensor t = source.tensor(name), copy = Tensor::host(t.shape(), t.dtype());
    std::memcpy(copy.raw(), t.raw(), std::size_t(t.bytes()));
    tensors.push_back(stored_tensor(name, change(name, copy)));
  }
  write_safetensors(to / "model.safetensors", tensors);
}

// The same job but for one key, each by what differs. `elsewhere`: a folder for files.
inline std::map<std::string, QuantizeOptions> other_jobs(const QuantizeOptions& o, const fs::path& elsewhere) {
  std::map<std::string, QuantizeOptions> all;
  copy_model(o.model, elsewhere / "model", [](const std::string&, const Tensor& t) {
    *static_cast<char*>(t.raw()) ^= 1;
    return t;
  });
  all["model"] = o, all["model"].model = elsewhere / "model";
  all["format"] = o, all["format"].format = o.format == "int4" ? "int5" : "int4";
  if (o.method.name == "smoothquant") all.erase("format");  // it has one
  if (o.method.name == "smoothquant") all["alpha"] = o, all["alpha"].method.alpha = 0.25;
  if (o.method.name == "gptq") all["act_order"] = o, all["act_order"].method.act_order = true;
  if (o.method.calibrate.empty()) return all;
  const std::string text = (elsewhere / "text.jsonl").string();
  fs::copy(o.method.calibrate, text);
  std::ofstream(text, std::ios::app) << R"({"text": "More."})" << "\n";
  all["calibrate"] = o, all["calibrate"].method.calibrate = text;
  all["tokens"] = o, all["tokens"].method.tokens = *o.method.tokens + 1;
  all["device"] = o, all["device"].method.device = "reference";
  all["method"] = o, all["method"].method.name = o.method.name == "gptq" ? "awq" : "gptq";
  return all;
}

// Stopped after the first layer, the work goes on with the second and gives the same files as in one go. Another job
// does not go on with it.
inline void expect_resumption(const QuantizeOptions& o, const fs::path& elsewhere) {
  QuantizeOptions whole = o;
  whole.out = elsewhere / "whole";
  const auto go = [](const QuantizeOptions& options) { return quantize_checkpoint(options, [](int, int) {}); };
  const std::vector<LayerError> want = go(whole);
  const auto stop = [](int finished, int) {
    if (finished == 1) throw Error("stop");
  };
  EXPECT_EQ(sentence_of([&] { (void)quantize_checkpoint(o, stop); }), "stop");
  EXPECT_FALSE(fs::exists(o.out));
  fs::path first;
  for (const auto& entry : fs::directory_iterator(o.out.string() + ".partial"))
    if (entry.path().filename().string().starts_with("model-00001-of-")) first = entry.path();
  ASSERT_TRUE(fs::exists(first));
  const auto written = fs::last_write_time(first);
  for (const auto& [key, other] : other_jobs(o, elsewhere)) {
    EXPECT_TRUE(says(sentence_of([&] { (void)go(other); }), ".partial", "another command", "--out")) << key;
    ASSERT_TRUE(fs::exists(first)) << key << ": what is refused is left as it was";
  }
  const std::vector<LayerError> errors = go(o);
  EXPECT_EQ(fs::last_write_time(o.out / first.filename()), written) << "a finished layer is not written again";
  ASSERT_EQ(errors.size(), want.size());
  for (std::size_t l = 0; l < want.size(); ++l) EXPECT_EQ(errors[l].error, want[l].error);
  for (const auto& entry : fs::directory_iterator(whole.out))
    EXPECT_EQ(read_file(entry.path()), read_file(o.out / entry.path().filename())) << entry.path();
  EXPECT_EQ(std::distance(fs::directory_iterator(o.out), {}), std::distance(fs::directory_iterator(whole.out), {}));
}

}  // namespace foretoken::test
