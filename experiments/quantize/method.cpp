#include "experiments/quantize/method.h"

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

std::vector<std::string> quantization_methods() { return {"rtn", "gptq"}; }

std::unique_ptr<Method> make_method(const MethodOptions& o, const DenseModel& model, const WeightFormat& format) {
  if (o.name == "gptq" && o.calibrate.empty())
    throw Error("the method gptq needs a calibration text; name one with --calibrate, as experiments/prompts.jsonl");
  if (o.name == "gptq") return methods::gptq(format, model, o);
  if (o.name != "rtn") unknown_name("method", o.name, quantization_methods());
  if (!o.calibrate.empty()) throw Error("the method rtn reads no calibration text; leave --calibrate out");
  return methods::rtn(format);
}

nlohmann::json job_of(const MethodOptions& o) {
  if (o.calibrate.empty()) return {{"method", o.name}};
  return {{"method", o.name}, {"calibrate", fingerprint(locate(o.calibrate))}, {"tokens", o.tokens}};
}

}  // namespace foretoken
