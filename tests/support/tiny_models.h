// The small checkpoints of tests/data/models as models, and as Models whose drafters load another of them.
#pragma once
#include "experiments/conformance/scenario.h"
#include "kernels/host_backend.h"

namespace foretoken::test {

using namespace conformance;

std::vector<std::string> tiny_model_names();  // folders of tests/data/models
// Keys and values in f32.
std::shared_ptr<Model> tiny_model(Backend& backend, const std::string& name, const std::string& dtype = "auto");
// Target and draft of one vocabulary. "table:same" loads the target, "table:other" it in int8, any other name another
// model.
Models tiny_models(Backend& backend);
std::unique_ptr<HostBackend> cpu_backend(int threads, const std::string& instructions = "");

}  // namespace foretoken::test
