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
    refuse(std::string("'") + key + "' of a random model must be a non-empty string", value);
  return value;
}

ModelChoice read_random(const nlohmann::json& model) {
  for (const auto& [key, value] : model.items()) expect_option("a random model", key, {"random", "seed", "tokenizer"});
  if (!model.contains("random")) refuse("a model must be a directory or {\"random\": SHAPE, \"seed\": 1}", model);
  ModelChoice c;
  c.random = text_of("random", model["random"]);
  c.tokenizer = model.contains("tokenizer") ? text_of("tokenizer", model["tokenizer"]) : kTokenizer;
  expect_shape(c.random);
  if (!model.contains("seed")) return c;
  const nlohmann::json& seed = model["seed"];
  if (!seed.is_number_integer() || seed < 0 || seed > std::int64_t(9e15))
    refuse("'seed' of a random model must be an integer >= 0, at most 9e15", seed);
  c.seed = seed;
  return c;
}

}  // namespace

ModelChoice ModelChoice::read(const nlohmann::json& model, const nlohmann::json& inflate) {
  if (!inflate.is_null() && (!inflate.is_string() || inflate == ""))
    refuse("'inflate' must be the name of a shape, or null", inflate);
  if (!model.is_object() && (!model.is_string() || model == ""))
    refuse("a model must be a directory or {\"random\": SHAPE, \"seed\": 1}", model);
  ModelChoice c = model.is_string() ? ModelChoice(model.get<std::string>()) : read_random(model);
  if (inflate.is_null()) return c;
  if (!c.random.empty())
    throw Error("random weights cannot be inflated to '" + inflate.get<std::string>() +
                "': they compute nothing that is worth keeping; ask for {\"random\": " + inflate.dump() + "} itself");
  c.inflate = inflate;
  expect_shape(c.inflate);
  return c;
}

nlohmann::json ModelChoice::document() const {
  if (random.empty()) return directory;
  return {{"random", random}, {"seed", seed}, {"tokenizer", tokenizer}};
}

std::string ModelChoice::text() const {
  if (!random.empty()) return "random " + random + " seed " + std::to_string(seed);
  return inflate.empty() ? directory : directory + " inflated to " + inflate;
}

}  // namespace foretoken
