#include "framework/model/gguf/gguf_model.h"

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
  ChatTemplate chat() const override {
    return ChatTemplate::of(file_->metadata().string_or("tokenizer.chat_template", ""), file_->where());
  }

 private:
  std::shared_ptr<const GgufFile> file_;
};

}  // namespace

std::shared_ptr<const ModelFiles> open_gguf(const std::filesystem::path& file) {
  return std::make_shared<GgufModel>(file);
}

}  // namespace foretoken
