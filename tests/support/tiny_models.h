// The small checkpoints of tests/data/models as models, and as Models whose drafters load another of them.
#pragma once
#include "experiments/conformance/scenario.h"
#include "kernels/host_backend.h"

namespace foretoken::test {

using namespace conformance;

std::vector<std::string> tiny_model_names();  // folders of tests/data/models
std::shared_ptr<Model> tiny_model(Backend& backend, const std::string& name, const std::string& dtype = "auto",
                                  const std::string& kv_dtype = "f32");
struct TinyModels {
  std::string target = "bf16";
  std::string kv_dtype = "f32", draft_kv_dtype = "f32";  // types of the caches of the target and of other models
  std::string other_dtype = "int8";                      // of "table:other"
};
// Target and draft of one vocabulary. "table:same" loads the target, "table:other" it rounded (of one that is stored in
// codes, its head), any other name another model.
Models tiny_models(Backend& backend, const TinyModels& choice = {});
std::unique_ptr<HostBackend> cpu_backend(int threads, const std::string& instructions = "");

}  // namespace foretoken::test
