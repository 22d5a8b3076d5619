#include "experiments/workbench.h"

#include "experiments/stop_strings.h"
#include "framework/model/transformer.h"
#include "kernels/error.h"
#ifdef FORETOKEN_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

namespace foretoken {

using nlohmann::json;

namespace {

std::unique_ptr<Backend> cuda() {
#ifdef FORETOKEN_CUDA
  return make_cuda_backend({});
#else
  throw Error(
      "device cuda: this program was built without CUDA; build it with ./foretoken --preset cuda build, or use "
      "\"device\": \"cpu\"");
#endif
}

std::unique_ptr<Backend> make_backend(const std::string& device, int threads) {
  if (device == "reference") return make_reference_backend();
  if (device == "cuda") return cuda();
  if (device == "auto") try {
      return cuda();
    } catch (const Error&) {  // no GPU, or no backend for it: that is what auto is for
    }
  return make_cpu_backend(threads);
}

// The path of a directory that must exist.
std::filesystem::path model_directory(const std::string& directory, const std::filesystem::path& beside) {
  const auto path = locate(directory, beside);
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored))
    throw Error("there is no model directory '" + directory +
                "'; name a Hugging Face directory with config.json, model.safetensors and tokenizer.json");
  return path;
}

}  // namespace

Workbench::Workbench() {
  register_drafters(registries_);
  register_verifiers(registries_);
}

Backend& Workbench::backend(const json& engine) {
  const std::string device = engine.at("device");
  const int threads = engine.at("threads");
  auto& made = backends_[device + ":" + std::to_string(threads)];
  if (!made) made = make_backend(device, threads);
  return *made;
}

std::shared_ptr<const Tokenizer> Workbench::tokenizer(const std::string& directory,
                                                      const std::filesystem::path& beside) {
  const auto path = model_directory(directory, beside);
  auto& loaded = tokenizers_[std::filesystem::weakly_canonical(path).string()];
  if (!loaded) loaded = Tokenizer::load(path);
  return loaded;
}

std::shared_ptr<Model> Workbench::model(Backend& backend, const std::string& directory, const std::string& dtype,
                                        const std::string& kv_dtype, const std::filesystem::path& beside) {
  const auto path = model_directory(directory, beside);
  const std::string device = std::to_string(reinterpret_cast<std::uintptr_t>(&backend));
  Loaded& loaded =
      models_[std::filesystem::weakly_canonical(path).string() + "|" + dtype + "|" + kv_dtype + "|" + device];
  loaded.used = true;
  if (!loaded.model)
    loaded.model =
        std::make_shared<Transformer>(backend, ModelConfig::load(path), Checkpoint::open(path), directory,
                                      tokenizer(directory, beside)->fingerprint(), TransformerOptions{dtype, kv_dtype});
  return loaded.model;
}

std::shared_ptr<Model> Workbench::target(const json& run, const std::filesystem::path& beside) {
  const json& t = run.at("target");
  return model(backend(run.at("engine")), t.at("model"), t.at("dtype"), t.at("kv_dtype"), beside);
}

std::unique_ptr<Engine> Workbench::engine(const json& run, Side side, const std::filesystem::path& beside, const Registries& registries) {
  const json& e = run.at("engine");
  Backend& device = backend(e);
  const std::string kv = run.at("target").at("kv_dtype");
  Engine::Chairs chairs{run.at("drafter"), run.at("policy"), run.at("verifier")};
  if (side == Side::baseline) chairs.drafter = {{"name", "none"}}, chairs.policy = {{"name", "fixed"}, {"length", 0}};
  const EngineOptions options{.batch = e.at("batch"),
                              .step_rows = e.at("step_rows"),
                              .page_rows = e.at("page_rows"),
                              .memory_mib = e.at("memory_mib"),
                              .pages = 0,
                              .reuse_prefixes = e.at("reuse_prefixes"),
                              .check = e.at("check")};
  return std::make_unique<Engine>(device, target(run, beside), registries, chairs, options,
                                  [this, &device, kv, beside](const std::string& directory, const std::string& dtype) {
                                    return model(device, directory, dtype, kv, beside);
                                  });
}

void Workbench::forget_unused() {
  std::erase_if(models_, [](const auto& entry) { return !entry.second.used; });
  for (auto& [key, loaded] : models_) loaded.used = false;
}

Request request_of(const json& run, const ModelInfo& target, const std::shared_ptr<const Tokenizer>& tokenizer,
                   const Prompt& prompt, std::uint64_t sample) {
  const json &s = run.at("sampling"), &w = run.at("workload");
  Request r;
  r.prompt = tokenizer->encode(prompt.text);
  r.limits.max_new_tokens = w.at("max_new_tokens");
  if (!w.at("ignore_eos").get<bool>()) r.limits.stop_tokens = target.stop_tokens;
  r.limits.stop = stop_at(tokenizer, w.at("stop").get<std::vector<std::string>>());
  r.sampling.temperature = s.at("temperature"), r.sampling.top_k = s.at("top_k"), r.sampling.top_p = s.at("top_p"),
  r.sampling.min_p = s.at("min_p");
  r.sampling.seed = s.at("seed"), r.sampling.logprobs = s.at("logprobs");
  r.stream = sample << 32 | std::uint64_t(prompt.number);
  return r;
}

}  // namespace foretoken
