#include "tests/support/tiny_models.h"

#include <algorithm>
#include <filesystem>

#include "framework/model/model_files.h"
#include "framework/model/transformer.h"

namespace foretoken::test {
namespace {

std::filesystem::path folder() { return std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/data/models"; }

}  // namespace

std::vector<std::string> tiny_model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::shared_ptr<Model> tiny_model(Backend& backend, const std::string& name, const std::string& dtype,
                                  const std::string& kv_dtype) {
  const auto files = ModelFiles::open(folder() / name);
  return std::make_shared<Transformer>(backend, files->config(), *files->tensors(), name, 0,
                                       TransformerOptions{.dtype = dtype, .kv_dtype = kv_dtype});
}

namespace {

std::shared_ptr<Model> rounded_model(Backend& backend, const std::string& name, const std::string& dtype,
                                     const std::string& kv_dtype) {
  const auto files = ModelFiles::open(folder() / name);
  const bool coded = files->config().quantization != nullptr;
  return std::make_shared<Transformer>(
      backend, files->config(), *files->tensors(), name, 0,
      TransformerOptions{.dtype = coded ? "auto" : dtype, .head_dtype = coded ? dtype : "auto", .kv_dtype = kv_dtype});
}

}  // namespace

Models tiny_models(Backend& backend, const TinyModels& choice) {
  const auto load = [&backend, choice](const ModelChoice& other) {
    if (other.directory == "table:same") return tiny_model(backend, choice.target, "auto", choice.kv_dtype);
    return other.directory == "table:other"
               ? rounded_model(backend, choice.target, choice.other_dtype, choice.draft_kv_dtype)
               : tiny_model(backend, "llama2", "auto", choice.draft_kv_dtype);
  };
  return {tiny_model(backend, choice.target, "auto", choice.kv_dtype), load};
}

std::unique_ptr<HostBackend> cpu_backend(int threads, const std::string& instructions) {
  return std::unique_ptr<HostBackend>(dynamic_cast<HostBackend*>(make_cpu_backend(threads, instructions).release()));
}

}  // namespace foretoken::test
