#include "framework/model/model_files.h"

#include <algorithm>
#include <set>

#include "framework/model/checkpoint.h"
#include "framework/model/gguf/gguf_model.h"
#include "framework/model/language_part.h"
#include "framework/model/quantized/quantization.h"
#include "framework/model/stacked_experts.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

class ModelDirectory : public ModelFiles {
 public:
  explicit ModelDirectory(fs::path directory) : directory_(std::move(directory)) {}

  ModelConfig config() const override { return ModelConfig::load(directory_); }
  std::shared_ptr<const TensorSource> tensors() const override {
    const auto checkpoint = std::make_shared<const Checkpoint>(Checkpoint::open(directory_));
    const ModelConfig c = config();
    std::shared_ptr<const TensorSource> tensors = checkpoint;
    if (c.quantization) tensors = quantized(checkpoint, c.quantization);
    tensors = by_expert(checkpoint, tensors, c);
    return c.vision ? language_part(tensors) : tensors;
  }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return Tokenizer::load(directory_); }
  ChatTemplate chat() const override { return ChatTemplate::load(directory_); }

 private:
  fs::path directory_;
};

}  // namespace

bool is_one_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::shared_ptr<const ModelFiles> ModelFiles::open(const fs::path& path) {
  expect_model(path);
  if (is_one_file(path)) return open_gguf(path);
  return std::make_shared<ModelDirectory>(path);
}

void expect_model(const fs::path& path) {
  if (is_one_file(path)) return;
  try {
    expect_model_directory(path);
  } catch (const Error& e) {
    const std::string name = path.string();  // OWNER/NAME, as the hub has them?
    if (!path.is_relative() || std::ranges::count(name, '/') != 1 || name.starts_with('.')) throw;
    throw Error(std::string(e.what()) +
                "; where that is a name on the Hugging Face hub, download the model to this path");
  }
}

// A named pipe is nothing that is read, and whoever needs it says so.
std::vector<fs::path> files_of_model(const fs::path& path) {
  if (is_one_file(path)) return {path};
  std::set<fs::path> files;
  for (const fs::path& weights : Checkpoint::files(path)) files.insert(weights);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path, ignored))
    if (entry.path().extension() == ".json" || entry.path().extension() == ".jinja") files.insert(entry.path());
  std::erase_if(files, [](const fs::path& file) {
    std::error_code error;
    return !fs::is_regular_file(file, error);
  });
  return {files.begin(), files.end()};
}

}  // namespace foretoken
