#include "experiments/serve/output.h"

#include <algorithm>

namespace foretoken::serve {
namespace {

// The longest end of `text` that is a beginning of `stop`, without all of it.
std::size_t begun_at_end(const std::string& text, const std::string& stop) {
  for (std::size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n)
    if (text.compare(text.size() - n, n, stop, 0, n) == 0) return n;
  return 0;
}

void add_at(std::vector<long>& counts, std::size_t level, long n) {
  if (counts.size() <= level) counts.resize(level + 1);
  counts[level] += n;
}

}  // namespace

std::size_t characters_in(std::string_view text) {
  return std::size_t(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string StopFilter::push(const std::string& text) {
  if (stopped_) return {};
  held_ += text;
  std::size_t first = held_.npos, held = 0;
  for (const std::string& stop : stops_) {
    first = std::min(first, held_.find(stop));
    held = std::max(held, begun_at_end(held_, stop));
  }
  stopped_ = first != held_.npos;
  const std::size_t shown = stopped_ ? first : held_.size() - held;
  std::string out = held_.substr(0, shown);
  held_.erase(0, stopped_ ? held_.size() : shown);
  return out;
}

std::string StopFilter::finish() { return std::exchange(held_, {}); }

void RoundCounts::add(const SequenceReport& report) {
  tokens += long(report.emitted.size());
  rounds += report.judged;
  drafted += report.drafted;
  tested += report.tested();
  accepted += report.accepted;
  for (std::size_t i = 0; i < report.levels.size(); ++i) {
    add_at(tested_at, i, 1);
    add_at(accepted_at, i, report.levels[i].accepted >= 0);
  }
}

RoundCounts& RoundCounts::operator+=(const RoundCounts& o) {
  tokens += o.tokens;
  rounds += o.rounds;
  drafted += o.drafted;
  tested += o.tested;
  accepted += o.accepted;
  for (std::size_t i = 0; i < o.tested_at.size(); ++i) {
    add_at(tested_at, i, o.tested_at[i]);
    add_at(accepted_at, i, o.accepted_at[i]);
  }
  return *this;
}

Output::Output(SubmittedOutput submitted, std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops)
    : stream_(std::move(submitted.stream)),
      tokenizer_(std::move(tokenizer)),
      characters_(tokenizer_),
      filter_(std::move(stops)),
      logprobs_(std::move(submitted.logprobs)),
      prompt_tokens_(submitted.prompt_tokens),
      most_tokens_(submitted.most_tokens),
      echo_(std::move(submitted.echo)) {}

void Output::Piece::add(const Piece& next) {
  text += next.text;
  tokens.insert(tokens.end(), next.tokens.begin(), next.tokens.end());
  logprobs.insert(logprobs.end(), next.logprobs.begin(), next.logprobs.end());
  ended = next.ended;
}

Output::Piece Output::piece_of(const SequenceReport& report) {
  counts_.add(report);
  Piece piece;
  piece.tokens = report.emitted;
  piece.text = filter_.push(characters_.push(report.emitted));
  if (logprobs_) piece.logprobs = logprobs_->take(report.emitted.size());
  return piece;
}

void Output::end(Piece& piece, Finish finish) {
  finish_ = filter_.stopped() ? Finish::stop_rule : finish;
  if (!filter_.stopped()) piece.text += filter_.push(characters_.finish());
  if (!filter_.stopped()) piece.text += filter_.finish();
  piece.ended = ended_ = true;
  if (finish_ == Finish::failed) failure_ = stream_.ended().failure;
  if (finish_ == Finish::cancelled) failure_ = "the request was cancelled, since the server is ending";
}

std::vector<Output::Piece> Output::read(bool joined) {
  std::vector<Piece> pieces;
  while (!ended_ && stream_.ready()) {
    const std::optional<SequenceReport> report = stream_.next();
    Piece piece = report ? piece_of(*report) : Piece{};
    if (filter_.stopped())
      stream_.cancel();  // where the engine's rule has not seen it, which compares special tokens too
    if (!report)
      end(piece, stream_.ended().finish);
    else if (report->finish != Finish::running || filter_.stopped())
      end(piece, report->finish);
    if (!joined || pieces.empty()) {
      pieces.push_back(std::move(piece));
      continue;
    }
    pieces.back().add(piece);
  }
  return pieces;
}

const char* Output::finish_reason() const { return finish_ == Finish::length ? "length" : "stop"; }

}  // namespace foretoken::serve
