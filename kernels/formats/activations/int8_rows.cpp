// Integers from -128 to 127; the greatest magnitude of a row becomes 127. With outliers apart: LLM.int8 (Dettmers et
// al. 2022, arXiv 2208.07339), whose threshold of 6 is judged for each row, not for the columns of a batch.
#include <algorithm>

#include "kernels/formats/activations/activation_format.h"

namespace foretoken::formats {
namespace {

class Int8Rows final : public ActivationFormat {
 public:
  Int8Rows(std::string name, std::string meaning, float outliers)
      : name_(std::move(name)), meaning_(std::move(meaning)), outliers_(outliers) {}
  std::string name() const override { return name_; }
  std::string meaning() const override { return meaning_; }
  Coding coding() const override { return Coding::integers; }
  float greatest() const override { return 127; }
  float outliers() const override { return outliers_; }
  // A sum with 1.5 * 2^23 has steps of 1, so it rounds as nearbyint() does, in instructions of every machine.
  void round(std::span<float> x, float s) const override {
    constexpr float kSteps = 12582912.0f;
    for (float& v : x) v = (std::min(std::max(v / s, -128.0f), 127.0f) + kSteps) - kSteps;
  }

 private:
  std::string name_, meaning_;
  float outliers_;
};

}  // namespace

const ActivationFormat& int8_rows() {
  static const Int8Rows format("int8", "int8, a scale for each row", 0);
  return format;
}

const ActivationFormat& int8_rows_outliers() {
  static const Int8Rows format("int8_outliers", "int8, a scale for each row, magnitudes of 6 and above apart", 6);
  return format;
}

}  // namespace foretoken::formats
