#include "drafters/observed_mass.h"

#include <algorithm>
#include <unordered_map>

#include "drafters/target_part.h"

namespace foretoken {

ObservedMass::ObservedMass(Host& host) : backend_(host.backend()), model_(host.view_of_target(kept_part({}, host))) {}

int ObservedMass::confirmed(const Sequence& sequence) {
  (void)model_->unseen(sequence);
  return model_->cache().confirmed(sequence.id);
}

std::vector<std::vector<float>> ObservedMass::observe(std::span<const Span> spans) {
  std::vector<std::vector<float>> masses(spans.size());
  std::unordered_map<SequenceId, std::size_t> count;
  std::vector<std::vector<std::size_t>> forwards;  // of spans
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const std::size_t k = count[spans[i].sequence->id]++;
    forwards.resize(std::max(forwards.size(), k + 1));
    forwards[k].push_back(i);
  }
  std::vector<Tensor> read;
  std::unordered_set<SequenceId> lacking;
  for (std::vector<std::size_t>& forward : forwards) read.push_back(begin(spans, forward, lacking));
  if (std::ranges::all_of(forwards, [](const auto& forward) { return forward.empty(); })) return masses;
  backend_.synchronize();
  for (std::size_t k = 0; k < forwards.size(); ++k)
    for (std::size_t n = 0; n < forwards[k].size(); ++n) {
      const std::size_t i = forwards[k][n];
      const float* row = read[k].row<float>(std::int64_t(n));
      masses[i].assign(row, row + model_->cache().pages_for(spans[i].end));
    }
  return masses;
}

Tensor ObservedMass::begin(std::span<const Span> spans, std::vector<std::size_t>& forward,
                           std::unordered_set<SequenceId>& lacking) {
  std::vector<Segment> segments;
  std::erase_if(forward, [&](std::size_t i) {
    const Span& s = spans[i];
    if (lacking.contains(s.sequence->id)) return true;
    const int rows = s.end - model_->cache().settle_before(*s.sequence, s.begin);
    if (!model_->reserve(*s.sequence, rows)) return lacking.insert(s.sequence->id).second;
    segments.push_back({s.sequence, rows});
    return false;
  });
  if (segments.empty()) return {};
  const Tensor mass = model_->mass(segments);
  const Tensor read = Tensor::host(mass.shape(), DType::f32);
  backend_.fetch(mass, read);
  for (const Segment& s : segments) (void)model_->unseen(*s.sequence);
  return read;
}

}  // namespace foretoken
