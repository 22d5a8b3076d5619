#include "drafters/observed_mass.h"

#include "drafters/target_part.h"

namespace foretoken {

ObservedMass::ObservedMass(Host& host) : backend_(host.backend()), model_(host.view_of_target(kept_part({}, host))) {}

int ObservedMass::confirmed(const Sequence& sequence) {
  (void)model_->unseen(sequence);
  return model_->cache().confirmed(sequence.id);
}

std::vector<std::vector<float>> ObservedMass::observe(std::span<const Span> spans) {
  std::vector<std::vector<float>> masses(spans.size());
  std::vector<Segment> segments;
  std::vector<std::size_t> of_segment;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Span& s = spans[i];
    const int rows = s.end - model_->cache().settle_before(*s.sequence, s.begin);
    if (!model_->reserve(*s.sequence, rows)) continue;
    segments.push_back({s.sequence, rows});
    of_segment.push_back(i);
  }
  if (segments.empty()) return masses;
  const Tensor mass = model_->mass(segments);
  const Tensor read = Tensor::host(mass.shape(), DType::f32);
  backend_.fetch(mass, read);
  backend_.synchronize();
  for (std::size_t n = 0; n < segments.size(); ++n) {
    const float* row = read.row<float>(std::int64_t(n));
    masses[of_segment[n]].assign(row, row + model_->cache().pages_for(spans[of_segment[n]].end));
    (void)model_->unseen(*segments[n].sequence);
  }
  return masses;
}

}  // namespace foretoken
