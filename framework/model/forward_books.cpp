#include "framework/model/forward_books.h"

namespace foretoken {

void ForwardBooks::add(Mark begin, int rows, int wanted, std::int64_t weight_bytes, std::int64_t left_out) {
  spans_.emplace_back(begin, backend_.mark());
  ++totals_.forwards, totals_.with_logits += wanted > 0, totals_.rows += rows;
  totals_.weight_bytes += double(weight_bytes), totals_.row_bytes += double(rows) * double(weight_bytes);
  if (wanted > 0) totals_.left_out += double(left_out);
}

double ForwardBooks::seconds() {
  for (const auto& [from, to] : spans_) seconds_ += backend_.seconds(from, to);
  spans_.clear();
  return seconds_;
}

std::int64_t ForwardBooks::output_bytes() const {
  std::int64_t bytes = 0;
  for (const std::vector<Tensor>* all : {&memory_->logits, &memory_->features})
    for (const Tensor& t : *all) bytes += t.bytes();
  return bytes;
}

}  // namespace foretoken
