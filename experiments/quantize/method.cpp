#include "experiments/quantize/method.h"

#include <algorithm>
#include <iterator>

#include "experiments/sweep/provenance.h"
#include "experiments/sweep/workload.h"
#include "framework/model/in_parallel.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace methods {
namespace {

// Rounding to nearest.
class Nearest final : public Method {
 public:
  explicit Nearest(const WeightFormat& format) : format_(format) {}
  Weight round(const std::string&, const Weight& dense) override { return quantize(dense, format_, 0, by_all_cores); }

 private:
  const WeightFormat& format_;
};

}  // namespace

std::unique_ptr<Method> rtn(const WeightFormat& format) { return std::make_unique<Nearest>(format); }

}  // namespace methods

namespace {

struct Known {
  const char* name;
  std::unique_ptr<Method> (*make)(const WeightFormat&, const DenseModel&, const MethodOptions&);
  bool reads_text;
  bool codes, sparse;  // the formats to which it rounds: those of codes, 2:4
};

constexpr Known kMethods[] = {
    {"rtn", [](const WeightFormat& f, const DenseModel&, const MethodOptions&) { return methods::rtn(f); }, false, true,
     true},
    {"gptq", methods::gptq, true, true, false},
    {"awq", methods::awq, true, true, false},
    {"smoothquant", methods::smoothquant, true, true, false},
    {"wanda", methods::wanda, true, false, true}};

void expect_options(const MethodOptions& o, const Known& method) {
  const std::string name = method.name;
  if (method.reads_text && o.calibrate.empty())
    throw Error("the method " + name +
                " needs a calibration text; name one with --calibrate, as experiments/prompts.jsonl");
  if (!method.reads_text && !o.calibrate.empty())
    throw Error("the method " + name + " reads no calibration text; leave --calibrate out");
  if (!method.reads_text && o.tokens)
    throw Error("the method " + name + " reads no calibration text; leave --tokens out");
  if (!method.reads_text && o.device)
    throw Error("the method " + name + " reads no calibration text, for which --device is; leave --device out");
  if (o.alpha && name != "smoothquant")
    throw Error("the method " + name + " has no alpha to be given (awq searches for it); leave --alpha out");
  if (o.alpha && !(*o.alpha >= 0 && *o.alpha <= 1))
    throw Error("alpha is " + std::to_string(*o.alpha) + "; give one from 0 to 1 with --alpha");
  if (o.act_order && name != "gptq")
    throw Error("the method " + name + " rounds columns in no order; leave --act-order out");
}

void expect_format(const WeightFormat& format, const Known& method) {
  const bool sparse = format.coding() == Coding::sparse;
  if (sparse ? method.sparse : method.codes) return;
  const std::string name = method.name;
  throw Error(sparse ? "the method " + name + " chooses codes, which the format " + format.name() + " (" +
                           format.meaning() + ") does not have; choose --method rtn or wanda"
                     : "the method wanda chooses the inputs that stay, and the format " + format.name() +
                           " leaves none out; choose --format sparse24, or another --method");
}

}  // namespace

std::vector<std::string> quantization_methods() { return names_of(kMethods); }

std::unique_ptr<Method> make_method(const MethodOptions& o, const DenseModel& model, const WeightFormat& format) {
  const Known* const method = std::ranges::find(kMethods, o.name, &Known::name);
  if (method == std::end(kMethods)) unknown_name("method", o.name, quantization_methods());
  expect_options(o, *method);
  expect_format(format, *method);
  return method->make(format, model, o);
}

nlohmann::json job_of(const MethodOptions& o) {
  if (o.calibrate.empty()) return {{"method", o.name}};
  return {{"method", o.name},
          {"calibrate", fingerprint(locate(o.calibrate))},
          {"tokens", o.tokens.value_or(kCalibrationTokens)},
          {"alpha", o.alpha ? nlohmann::json(*o.alpha) : nlohmann::json()},
          {"act_order", o.act_order},
          {"device", o.device.value_or("auto")}};
}

}  // namespace foretoken
