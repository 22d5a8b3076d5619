#include "framework/model/gguf/gguf_model.h"

#include <algorithm>

#include "framework/model/gguf/gguf_tensors.h"
#include "framework/model/gguf/gguf_tokenizer.h"

namespace foretoken {
namespace {

class GgufModel : public ModelFiles {
 public:
  explicit GgufModel(const std::filesystem::path& file) : file_(GgufFile::open(file)) {}

  ModelConfig config() const override { return gguf_config(*file_); }
  std::shared_ptr<const TensorSource> tensors() const override {
    return std::make_shared<GgufTensors>(file_, config());
  }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return gguf_tokenizer(file_->metadata()); }
  nlohmann::ordered_json marks() const override {
    const GgufMetadata& metadata = file_->metadata();
    nlohmann::ordered_json marks = nlohmann::ordered_json::object();
    for (const std::string name : {"bos", "eos"}) {
      const std::string key = "tokenizer.ggml." + name + "_token_id";
      if (!metadata.has(key) || !metadata.has("tokenizer.ggml.tokens")) continue;
      const auto& tokens = metadata.strings("tokenizer.ggml.tokens");
      const int last = int(tokens.size()) - 1, id = metadata.integer(key, 0, std::max(last, 0));
      if (id <= last) marks[name + "_token"] = std::string(tokens[std::size_t(id)]);
    }
    return marks;
  }
  ChatTemplate chat() const override {
    return ChatTemplate::of(file_->metadata().string_or("tokenizer.chat_template", ""), marks(), file_->where());
  }

 private:
  std::shared_ptr<const GgufFile> file_;
};

}  // namespace

std::shared_ptr<const ModelFiles> open_gguf(const std::filesystem::path& file) {
  return std::make_shared<GgufModel>(file);
}

}  // namespace foretoken
