#include "framework/model/model_choice.h"

#include <nlohmann/json.hpp>

#include "framework/model/shapes.h"
#include "framework/text/json_file.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr const char* kTokenizer = "experiments/models/target";

[[noreturn]] void refuse(const std::string& what, const nlohmann::json& value) {
  throw Error(what + ", not " + shown(value));
}

std::string text_of(const char* key, const nlohmann::json& value) {
  if (!value.is_string() || value == "")
    refuse(std::string("'") + key + "' of a model must be a non-empty string", value);
  return value;
}

ModelChoice read_random(const nlohmann::json& model) {
  for (const auto& [key, value] : model.items())
    expect_option("a random model", key,
                  {"random", "seed", "scales", "tokenizer", "dtype", "head_dtype", "kv_dtype", "long_context"});
  ModelChoice c;
  c.random = text_of("random", model["random"]);
  c.tokenizer = model.contains("tokenizer") ? text_of("tokenizer", model["tokenizer"]) : kTokenizer;
  expect_shape(c.random);
  if (model.contains("scales")) {
    c.scales = text_of("scales", model["scales"]);
    if (c.scales != "bf16" && c.scales != "f16" && c.scales != "f32")
      refuse("'scales' of a random model must be bf16, f16 or f32", model["scales"]);
  }
  if (!model.contains("seed")) return c;
  const nlohmann::json& seed = model["seed"];
  if (!seed.is_number_integer() || seed < 0 || seed > std::int64_t(9e15))
    refuse("'seed' of a random model must be an integer >= 0, at most 9e15", seed);
  c.seed = seed;
  return c;
}

ModelChoice read_model(const nlohmann::json& model) {
  if (model.is_string() && model != "") return ModelChoice(model.get<std::string>());
  if (model.is_object() && model.contains("random")) return read_random(model);
  if (!model.is_object() || !model.contains("directory"))
    refuse(
        "a model must be a directory, a .gguf file, {\"directory\": PATH, \"inflate\": SHAPE, \"dtype\": TYPE} or "
        "{\"random\": SHAPE, \"seed\": 1}",
        model);
  for (const auto& [key, value] : model.items())
    expect_option("a model", key, {"directory", "inflate", "dtype", "head_dtype", "kv_dtype", "long_context"});
  return ModelChoice(text_of("directory", model["directory"]));
}

// A part of a choice that stands within the model's object or beside it; null: in neither.
nlohmann::json part(const char* key, const nlohmann::json& model, const nlohmann::json& beside) {
  const nlohmann::json within = model.is_object() ? model.value(key, nlohmann::json()) : nlohmann::json();
  if (!within.is_null() && !beside.is_null() && within != beside)
    throw Error(std::string("'") + key + "' of the model " + shown(model) + " is given twice, as " + shown(within) +
                " and as " + shown(beside) + "; leave one of them out");
  return within.is_null() ? beside : within;
}

}  // namespace

ModelChoice ModelChoice::read(const nlohmann::json& model, const nlohmann::json& inflate, const nlohmann::json& dtype,
                              const nlohmann::json& kv_dtype) {
  ModelChoice c = read_model(model);
  const nlohmann::json cache = part("kv_dtype", model, kv_dtype == "target" ? nlohmann::json() : kv_dtype);
  if (!cache.is_null()) c.kv_dtype = text_of("kv_dtype", cache);
  const nlohmann::json type = part("dtype", model, dtype == "auto" ? nlohmann::json() : dtype);
  if (!type.is_null()) c.dtype = text_of("dtype", type);
  if (model.is_object() && model.contains("head_dtype")) c.head_dtype = text_of("head_dtype", model["head_dtype"]);
  if (model.is_object() && model.contains("long_context")) {
    if (!model["long_context"].is_boolean())
      refuse("'long_context' of a model must be true or false", model["long_context"]);
    c.long_context = model["long_context"];
  }
  const nlohmann::json shape = part("inflate", model, inflate);
  if (shape.is_null()) return c;
  if (!shape.is_string() || shape == "") refuse("'inflate' must be the name of a shape, or null", shape);
  if (!c.random.empty())
    throw Error("random weights cannot be inflated to '" + shape.get<std::string>() +
                "': they compute nothing that is worth keeping; ask for {\"random\": " + shape.dump() + "} itself");
  c.inflate = shape;
  expect_shape(c.inflate);
  return c;
}

ModelChoice ModelChoice::read(const nlohmann::json& model, const nlohmann::json& inflate, const nlohmann::json& dtype) {
  return read(model, inflate, dtype, "target");
}

ModelChoice ModelChoice::read(const nlohmann::json& model, const nlohmann::json& inflate) {
  return read(model, inflate, "auto");
}

ModelChoice ModelChoice::read(const nlohmann::json& model) { return read(model, nullptr); }

nlohmann::json ModelChoice::document() const {
  nlohmann::json all;
  if (random.empty())
    all = {{"directory", directory}};
  else
    all = {{"random", random}, {"seed", seed}, {"tokenizer", tokenizer}};
  if (scales != "bf16") all["scales"] = scales;
  if (!inflate.empty()) all["inflate"] = inflate;
  if (dtype != "auto") all["dtype"] = dtype;
  if (head_dtype != "auto") all["head_dtype"] = head_dtype;
  if (kv_dtype != "target") all["kv_dtype"] = kv_dtype;
  if (long_context) all["long_context"] = true;
  return random.empty() && all.size() == 1 ? nlohmann::json(directory) : all;
}

std::string ModelChoice::text() const {
  const std::string end = long_context ? " with its long context" : "";
  if (!random.empty()) return "random " + random + " seed " + std::to_string(seed) + end;
  return (inflate.empty() ? directory : directory + " inflated to " + inflate) + end;
}

}  // namespace foretoken
