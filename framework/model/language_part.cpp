#include "framework/model/language_part.h"

#include <algorithm>
#include <array>
#include <map>

namespace foretoken {
namespace {

struct Renamed {
  const char *stored, *own;
};
// As Transformers 4 and 5 write them.
constexpr Renamed kRenamed[] = {
    {"language_model.model.", "model."}, {"language_model.lm_head.", "lm_head."}, {"model.language_model.", "model."}};
constexpr std::array kOfVision = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                  "model.multi_modal_projector."};

class LanguagePart final : public TensorSource {
 public:
  explicit LanguagePart(std::shared_ptr<const TensorSource> whole) : whole_(std::move(whole)) {
    for (const std::string& stored : whole_->names()) {
      if (std::ranges::any_of(kOfVision, [&](const char* module) { return stored.starts_with(module); })) continue;
      stored_[own_name(stored)] = stored;
    }
  }

  Tensor tensor(const std::string& name, const Shape& expected) const override {
    return whole_->tensor(stored_name(name), expected);
  }
  Weight matrix(const std::string& module, const Shape& expected) const override {
    constexpr const char* kEnd = ".weight";
    const std::string stored = stored_name(module + kEnd);
    return whole_->matrix(stored.substr(0, stored.size() - std::string(kEnd).size()), expected);
  }
  std::vector<const WeightFormat*> formats() const override { return whole_->formats(); }
  DType scales() const override { return whole_->scales(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [own, stored] : stored_) names.push_back(own);
    return names;
  }
  std::string where() const override { return whole_->where(); }

 private:
  static std::string own_name(const std::string& stored) {
    for (const Renamed& r : kRenamed)
      if (stored.starts_with(r.stored)) return r.own + stored.substr(std::string(r.stored).size());
    return stored;
  }
  std::string stored_name(const std::string& own) const {
    const auto found = stored_.find(own);
    return found == stored_.end() ? own : found->second;
  }

  std::shared_ptr<const TensorSource> whole_;
  std::map<std::string, std::string> stored_;  // by its own name
};

}  // namespace

std::shared_ptr<const TensorSource> language_part(std::shared_ptr<const TensorSource> whole) {
  return std::make_shared<LanguagePart>(std::move(whole));
}

}  // namespace foretoken
