#include "experiments/workbench.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "experiments/workload.h"
#include "framework/model/transformer.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

Workbench::Workbench() {
  register_drafters(registries_);
  register_verifiers(registries_);
}

// The CUDA backend does not compute yet, so that "auto" is always the CPU.
std::string Workbench::resolve(const std::string& device) { return device == "auto" ? "cpu" : device; }

Backend& Workbench::backend(const std::string& device, int threads) {
  const std::string name = resolve(device);
  auto& made = backends_[name + ":" + std::to_string(threads)];
  if (made) return *made;
  if (name == "cpu") made = make_cpu_backend(threads);
  else if (name == "reference") made = make_reference_backend();
  else if (name == "cuda") throw Error("the cuda device is not implemented yet; use \"device\": \"cpu\"");
  else unknown_name("device", device, {"auto", "cpu", "reference", "cuda"});
  return *made;
}

std::shared_ptr<const Tokenizer> Workbench::tokenizer(const std::string& directory) {
  auto& loaded = tokenizers_[directory];
  if (!loaded) loaded = Tokenizer::load(locate(directory));
  return loaded;
}

std::shared_ptr<Model> Workbench::model(Backend& backend, const std::string& directory, const std::string& dtype, const std::string& kv_dtype) {
  auto& loaded = models_[backend.description() + "|" + directory + "|" + dtype + "|" + kv_dtype];
  if (loaded) return loaded;
  const auto path = locate(directory);
  if (!std::filesystem::is_directory(path)) throw Error("there is no model directory '" + directory + "'; name a Hugging Face directory with config.json, model.safetensors and tokenizer.json");
  const ModelConfig config = ModelConfig::load(path);
  const auto words = tokenizer(directory);
  loaded = std::make_shared<Transformer>(backend, config, Checkpoint::open(path), directory, words->fingerprint(), TransformerOptions{dtype, kv_dtype});
  return loaded;
}

std::unique_ptr<Engine> Workbench::engine(const json& run, bool plain) {
  const json& e = run["engine"];
  Backend& device = backend(e["device"], e["threads"]);
  const std::string kv = run["target"]["kv_dtype"];
  const auto target = model(device, run["target"]["model"], run["target"]["dtype"], kv);
  const Engine::Chairs chairs{plain ? json{{"name", "none"}} : run["drafter"], run["policy"], run["verifier"]};
  const EngineOptions options{.batch = e["batch"], .step_rows = e["step_rows"], .page_rows = e["page_rows"], .memory_mib = e["memory_mib"],
                              .pages = 0, .reuse_prefixes = e["reuse_prefixes"], .check = e["check"]};
  return std::make_unique<Engine>(device, target, registries_, chairs, options, [this, &device, kv](const std::string& directory, const std::string& dtype) {
    return model(device, directory, dtype, kv);
  });
}

StopRule stop_at(std::vector<std::string> stops, std::shared_ptr<const Tokenizer> tokenizer) {
  if (stops.empty()) return {};
  return [stops = std::move(stops), tokenizer](std::span<const Token> generated, int) -> std::optional<int> {
    const std::string text = tokenizer->decode(generated);
    std::size_t first = std::string::npos;
    for (const auto& s : stops) first = std::min(first, text.find(s));
    if (first == std::string::npos) return std::nullopt;
    int keep = int(generated.size());
    while (keep > 0 && tokenizer->decode(generated.first(std::size_t(keep))).size() > first) --keep;
    return keep;
  };
}

Request request_of(const json& run, const ModelInfo& model, std::shared_ptr<const Tokenizer> tokenizer, const std::string& prompt, std::uint64_t stream) {
  const json &s = run["sampling"], &w = run["workload"];
  Request r;
  r.prompt = tokenizer->encode(prompt);
  r.limits.max_new_tokens = w["max_new_tokens"];
  if (!w["ignore_eos"].get<bool>()) r.limits.stop_tokens = model.stop_tokens;
  std::vector<std::string> stops = w["stop"];
  std::erase(stops, "");
  r.limits.stop = stop_at(std::move(stops), tokenizer);
  r.sampling = {.temperature = s["temperature"], .top_k = s["top_k"], .top_p = s["top_p"], .min_p = s["min_p"], .seed = s["seed"], .logprobs = s["logprobs"]};
  r.stream = stream;
  return r;
}

json machine(const Backend& backend) {
  std::string cpu = "unknown", line;
  std::ifstream info("/proc/cpuinfo");
  while (std::getline(info, line))
    if (line.starts_with("model name")) {
      cpu = line.substr(line.find(':') + 2);
      break;
    }
  utsname name{};
  uname(&name);
  struct sysinfo memory {};
  sysinfo(&memory);
  return {{"cpu", cpu},
          {"cores", std::thread::hardware_concurrency()},
          {"instructions", backend.description()},
          {"os", std::string(name.sysname) + " " + name.release},
          {"memory_gib", std::int64_t(memory.totalram) * memory.mem_unit >> 30}};
}

}  // namespace foretoken
