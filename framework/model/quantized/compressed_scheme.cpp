#include "framework/model/quantized/compressed_scheme.h"

#include <tuple>

#include "framework/model/quantized/settings.h"
#include "framework/model/quantized/unpacking.h"
#include "framework/text/json_file.h"
#include "kernels/formats/formats.h"

namespace foretoken {
namespace {

using Layout = CompressedScheme::Layout;
using Strategy = CompressedScheme::Strategy;

constexpr int kMost = 1 << 24;
constexpr const char* kAgain = "; download config.json again";

Layout layout_of(const Fields& group, const std::string& whole, bool floats) {
  const std::string name = group.has("format") ? group.string("format") : whole;
  if (name == "pack-quantized") return Layout::packed;
  if (name == "int-quantized") return Layout::integers;
  if (name == "float-quantized") return Layout::floats;
  if (name == "naive-quantized") return floats ? Layout::floats : Layout::integers;
  if (name == "mxfp4-pack-quantized") return Layout::microscaling;
  group.refuse("format",
               "the supported ones are pack-quantized, int-quantized, float-quantized, naive-quantized and "
               "mxfp4-pack-quantized, and that of the whole is \"" +
                   name + "\"; choose a checkpoint of one of them");
}

bool is_float(const Fields& arguments) {
  const std::string type = arguments.string_or("type", "int");
  if (type != "int" && type != "float")
    arguments.refuse("type", "the supported ones are \"int\" and \"float\"; choose a checkpoint of one of them");
  return type == "float";
}

// As compressed-tensors fills in what is absent: a group size of -1 means channels, above 0 groups, else the tensor.
void read_strategy(const Fields& weights, CompressedScheme& s) {
  const int group = weights.integer_or("group_size", -1, kMost, 0);
  const std::string name = weights.string_or("strategy", group > 0 ? "group" : group < 0 ? "channel" : "tensor");
  if (name == "tensor")
    s.strategy = Strategy::tensor;
  else if (name == "channel")
    s.strategy = Strategy::channel;
  else if (name == "group")
    s.strategy = Strategy::group;
  else if (name == "block")
    s.strategy = Strategy::block;
  else
    weights.refuse(
        "strategy",
        "the supported ones are \"tensor\", \"channel\", \"group\" and \"block\"; choose another checkpoint");
  if (s.strategy == Strategy::group && group < 1)
    weights.refuse("group_size", std::string("the strategy \"group\" needs one") + kAgain);
  s.group = group;
  if (s.strategy == Strategy::block) std::tie(s.block_outputs, s.block_inputs) = read_block(weights, "block_structure");
}

void refuse_dynamic(const Fields& weights) {
  if (const auto* dynamic = weights.find("dynamic"); dynamic && *dynamic != false)
    weights.refuse("dynamic", "scales of weights must be stored; choose a checkpoint of static weights");
  const auto* order = weights.find("actorder");
  if (order && *order != false && *order != "weight" && *order != "static")
    weights.refuse("actorder",
                   "the supported ones are \"weight\" and \"static\", which do not change the layout; choose another "
                   "checkpoint");
}

// Bits, type and strategy must be what the layout stores.
void expect_consistent(const Fields& weights, const CompressedScheme& s, bool floats) {
  const bool wants_floats = s.layout == Layout::floats || s.layout == Layout::microscaling;
  if (floats != wants_floats)
    weights.refuse("type", std::string("the format stores ") + (wants_floats ? "floats" : "integers") + kAgain);
  const bool of_4 = s.bits == 4 && s.layout != Layout::floats, of_8 = s.bits == 8 && s.layout != Layout::microscaling;
  const bool between = (s.bits == 5 || s.bits == 6) && s.layout == Layout::packed;
  if (!of_4 && !of_8 && !between)
    weights.refuse("num_bits", s.layout == Layout::floats ? "the supported one is 8; choose a checkpoint of it"
                               : s.layout == Layout::microscaling
                                   ? std::string("the format has 4") + kAgain
                                   : "the supported ones are 4, 5, 6 and 8, of 5 and 6 where they are packed; choose a "
                                     "checkpoint of one of them");
  if (floats && !s.symmetric) weights.refuse("symmetric", std::string("floats must be symmetric") + kAgain);
  if (s.layout == Layout::microscaling && (s.strategy != Strategy::group || s.group != 32))
    weights.refuse("group_size", std::string("the format has groups of 32") + kAgain);
  if (s.layout == Layout::packed && !s.symmetric && s.strategy != Strategy::group && s.strategy != Strategy::channel)
    weights.refuse("strategy",
                   "packed zero points are supported for groups and channels; choose a checkpoint of these");
}

Activations read_activations(const Fields& inputs) {
  Activations a;
  a.bits = inputs.integer_or("num_bits", 1, 16, 8);
  a.integers = !is_float(inputs);
  const auto* dynamic = inputs.find("dynamic");
  if (dynamic && !dynamic->is_boolean())
    inputs.refuse("dynamic", "the supported ones are true and false; choose a checkpoint of one of them");
  a.dynamic = dynamic && dynamic->get<bool>();
  a.strategy = inputs.string_or("strategy", a.dynamic ? "token" : "tensor");
  a.symmetric = inputs.boolean_or("symmetric", true);
  return a;
}

}  // namespace

CompressedScheme CompressedScheme::read(const Fields& group, const std::string& format) {
  CompressedScheme s;
  group.array("targets");
  s.targets = ModuleTargets(group, "targets");
  const Fields weights = group.object("weights");
  const bool floats = is_float(weights);
  s.layout = layout_of(group, format, floats);
  s.bits = weights.integer_or("num_bits", 1, 32, 8);
  s.symmetric = weights.boolean_or("symmetric", true);
  refuse_dynamic(weights);
  read_strategy(weights, s);
  expect_consistent(weights, s, floats);
  if (group.has("input_activations")) s.activations = read_activations(group.object("input_activations"));
  s.activations.weights = &s.format();
  if (group.has("output_activations"))
    group.refuse("output_activations", "outputs that are rounded are not supported; choose a checkpoint without them");
  return s;
}

CompressedScheme CompressedScheme::read_sparse(const Fields& sparsity) {
  CompressedScheme s;
  if (sparsity.string("sparsity_structure") != "2:4")
    sparsity.refuse("sparsity_structure", "the supported one is \"2:4\"; choose a checkpoint of it");
  sparsity.array("targets");
  s.targets = ModuleTargets(sparsity, "targets");
  s.layout = Layout::sparse, s.activations.weights = &s.format();
  return s;
}

const WeightFormat& CompressedScheme::format() const {
  if (layout == Layout::sparse) return formats::sparse24();
  if (layout == Layout::microscaling) return formats::mxfp4();
  if (layout == Layout::integers || layout == Layout::packed)
    return unpacking::integers(bits, strategy == Strategy::group || strategy == Strategy::block, symmetric);
  if (strategy == Strategy::tensor) return formats::fp8_tensor();
  return strategy == Strategy::block ? formats::fp8_block() : formats::fp8();
}

}  // namespace foretoken
