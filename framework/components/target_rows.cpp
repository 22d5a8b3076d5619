#include "framework/components/target_rows.h"

#include <algorithm>

namespace foretoken {

std::vector<int> read_target(CachedModel& model, std::span<const Tap> taps, std::span<const DraftRequest> requests,
                             const std::function<bool(const DraftRequest&)>& drafts) {
  std::vector<int> complete;
  std::vector<Segment> segments;
  std::vector<std::uint64_t> addresses;
  RowInputs form;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const DraftRequest& r = requests[i];
    if (r.rows == 0 || r.sequence->length() > model.info().positions) continue;
    const int unseen = int(model.unseen(*r.sequence).size()), begin = model.cache().confirmed(r.sequence->id);
    // While a prompt is read, the target has no states of its last tokens.
    const int rows = std::min({unseen - 1, r.rows, r.hidden.rows() - begin});
    if (rows > 0 && !model.reserve(*r.sequence, rows)) continue;
    // It drafts from the second round on: whether the first one has states depends on prefixes that others read.
    if (unseen <= r.rows && rows == unseen - 1 && drafts(r) && r.sequence->generated() > 0) complete.push_back(int(i));
    if (rows <= 0) continue;
    segments.push_back({r.sequence, rows});
    form = r.hidden.form(taps);
    for (int at = begin; at < begin + rows; ++at) r.hidden.append(at, taps, addresses);
  }
  std::size_t at = 0;
  for (Segment& s : segments) {
    const std::size_t n = std::size_t(s.chain) * std::size_t(form.pieces);
    s.inputs = std::span(addresses).subspan(at, n), at += n;
  }
  if (!segments.empty()) (void)model.run(segments, form);
  return complete;
}

}  // namespace foretoken
