#include "experiments/session/check_environment.h"

#include "experiments/session/request.h"
#include "framework/model/transformer.h"
#include "kernels/error.h"
#ifdef FORETOKEN_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

namespace foretoken {

using conformance::Environment, conformance::Models;

namespace {

// The demo models, for laws on trained models. Drafters that load a model get the draft, or the target itself.
Models demo_models(Backend& backend, const std::filesystem::path& folder) {
  const auto load = [&backend, folder](const std::string& name) -> std::shared_ptr<Model> {
    const auto path = folder / (name == "table:same" || name == "target" ? "target" : "draft");
    return std::make_shared<Transformer>(backend, ModelConfig::load(path), Checkpoint::open(path),
                                         path.filename().string(), 1,
                                         TransformerOptions{.dtype = "auto", .kv_dtype = "auto"});
  };
  return {load("target"), [load](const ModelChoice& choice) { return load(choice.directory); }};
}

}  // namespace

Environment check_environment() {
  Environment e;
  for (const std::string& instructions : cpu_instructions())
    e.devices.push_back({"cpu " + instructions, [instructions] { return make_cpu_backend(1, instructions); }});
#ifdef FORETOKEN_CUDA
  if (cuda_devices() > 0) {  // a GPU that cannot be used is an Error, so that no law is silently left out
    const auto make = [] { return std::unique_ptr<Backend>(make_cuda_backend({.invariant = true})); };
    e.devices.push_back({make()->name(), make});
  }
#endif
  const auto folder = locate("experiments/models");
  std::error_code ignored;
  if (std::filesystem::is_directory(folder / "target", ignored))
    e.trained = [folder](Backend& b) { return demo_models(b, folder); };
  return e;
}

}  // namespace foretoken
