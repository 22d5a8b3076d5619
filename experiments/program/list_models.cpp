// The models of `foretoken list --models`: families and published shapes.
#include <cmath>

#include "experiments/program/commands.h"
#include "framework/model/gguf/gguf_config.h"
#include "framework/model/model_tensors.h"
#include "framework/model/shapes.h"

namespace foretoken {
namespace {

using nlohmann::ordered_json;

// In billions, and of them those that a row uses.
double billions(const ModelConfig& c, bool used) {
  const double unused = used && c.mixture ? 1 - c.mixture->used_share() : 0;
  double sum = 0;
  for (const auto& [name, shape] : tensors_of(c))
    sum += double(shape.elements()) * (name.find(".experts.") != name.npos ? 1 - unused : 1);
  return std::round(sum / 1e7) / 100;
}

ordered_json described_shape(const std::string& name) {
  const ModelConfig c = published_shape(name);
  ordered_json shape{{"name", name}, {"architecture", c.architecture}, {"parameters", billions(c, false)}};
  if (!c.mixture) return shape;
  shape["parameters_used"] = billions(c, true);
  shape["experts"] = c.mixture->experts;
  shape["experts_used"] = c.mixture->used;
  return shape;
}

std::string shape_line(const ordered_json& shape) {
  const auto text = [&](const char* key) { return shape.at(key).dump(); };
  std::string line = "  " + shape.at("name").get<std::string>() + ": " + shape.at("architecture").get<std::string>() +
                     ", " + text("parameters") + " billion parameters";
  if (shape.contains("experts"))
    line += ", of which a token uses " + text("parameters_used") + " (" + text("experts_used") + " of " +
            text("experts") + " experts)";
  return line + "\n";
}

}  // namespace

std::string list_models(bool as_json) {
  ordered_json shapes = ordered_json::array();
  for (const std::string& name : shape_names()) shapes.push_back(described_shape(name));
  if (as_json)
    return ordered_json{{"architectures", architectures()}, {"gguf", gguf_architectures()}, {"shapes", shapes}}.dump(
               2) +
           "\n";
  std::string text = "architectures in Hugging Face directories\n";
  for (const std::string& name : architectures()) text += "  " + name + "\n";
  text += "\narchitectures in GGUF files\n";
  for (const std::string& name : gguf_architectures()) text += "  " + name + "\n";
  text += "\npublished shapes, for random and inflated weights\n";
  for (const ordered_json& shape : shapes) text += shape_line(shape);
  return text;
}

}  // namespace foretoken
