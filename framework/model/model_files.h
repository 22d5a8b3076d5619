// What lies at the path of a model: a directory in Hugging Face form, or one GGUF file. This is the only place that
// tells them apart. This module must not know runs, devices or what the model is for.
#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "framework/model/config.h"
#include "framework/model/tensor_source.h"
#include "framework/text/chat_template.h"
#include "framework/text/tokenizer.h"

namespace foretoken {

class ModelFiles {
 public:
  // A regular file is a GGUF file, anything else a directory. Nothing there: an Error. What is read from it is checked
  // when it is asked for.
  static std::shared_ptr<const ModelFiles> open(const std::filesystem::path& path);
  virtual ~ModelFiles() = default;

  virtual ModelConfig config() const = 0;
  virtual std::shared_ptr<const TensorSource> tensors() const = 0;
  virtual std::shared_ptr<const Tokenizer> tokenizer() const = 0;
  virtual ChatTemplate chat() const = 0;
  // The texts of its special tokens by name, for another template (ChatTemplate::of).
  virtual nlohmann::ordered_json marks() const = 0;
};

// An Error unless something is there that open() takes.
void expect_model(const std::filesystem::path& path);
// The files that a model's results depend on, as far as they are there.
std::vector<std::filesystem::path> files_of_model(const std::filesystem::path& path);
// Whether a model is one file, so that its configuration is in that file too.
bool is_one_file(const std::filesystem::path& path);

}  // namespace foretoken
