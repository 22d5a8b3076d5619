#include "experiments/session/arrival_rate.h"

#include <algorithm>
#include <cmath>

#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

constexpr double kLeastOfPieces = 0.001, kMostOfPieces = 1e6;  // seconds, and requests per second, as of one rate

bool in_range(double x) { return x >= kLeastOfPieces && x <= kMostOfPieces; }

// Of element `i` of a list; empty where it is a piece.
std::string refusal_of_piece(const json& piece, std::size_t i) {
  const std::string which = "piece " + std::to_string(i + 1) + " of '/workload/rates' ";
  if (!piece.is_array() || piece.size() != 2 || !piece[0].is_number() || !piece[1].is_number())
    return which + "must be [seconds, requests per second], not " + shown(piece);
  const double rate = piece[1];
  if (!in_range(piece[0])) return which + "must last 0.001 to 1000000 seconds, not " + shown(piece[0]);
  if (rate != 0 && !in_range(rate))
    return which + "must have 0, or 0.001 to 1000000, requests per second, not " + shown(piece[1]);
  return "";
}

// Of a list that refusal_of_rates() takes.
ArrivalRate rates_of(const json& list) {
  std::vector<ArrivalRate::Piece> pieces;
  for (const json& piece : list) pieces.push_back({.seconds = piece[0], .rate = piece[1]});
  return ArrivalRate(pieces);
}

}  // namespace

ArrivalRate::ArrivalRate(const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    const double before = expected_;
    expected_ += piece.seconds * piece.rate;
    spans_.push_back({.begin = period_, .before = before, .until = expected_, .rate = piece.rate});
    period_ += piece.seconds;
  }
  mean_ = expected_ / period_;
  if (std::ranges::all_of(pieces, [&](const Piece& piece) { return piece.rate == pieces[0].rate; })) {
    mean_ = pieces[0].rate, period_ = 0;
    spans_.clear();
  }
}

double ArrivalRate::when(double expected) const {
  if (spans_.empty()) return expected / mean_;
  double periods = std::floor(expected / expected_), rest = expected - periods * expected_;
  if (rest < 0) rest = 0;                                                // rounded
  auto span = std::ranges::upper_bound(spans_, rest, {}, &Span::until);  // never one of rate 0
  if (span == spans_.end()) periods += 1, rest = 0, span = spans_.begin();
  return periods * period_ + span->begin + (rest - span->before) / span->rate;
}

std::string refusal_of_rates(const json& rates) {
  constexpr auto kForm = "pieces of [seconds, requests per second], as [[30, 2], [30, 20]]";
  if (!rates.is_array() || rates.empty())
    return "'/workload/rates' must be a list of " + std::string(kForm) + ", not " + shown(rates);
  for (std::size_t i = 0; i < rates.size(); ++i)
    if (const std::string refusal = refusal_of_piece(rates[i], i); !refusal.empty()) return refusal;
  if (std::ranges::all_of(rates, [](const json& piece) { return piece[1] == 0; }))
    return "all rates of '/workload/rates' are 0, so that no request would arrive; give one piece a rate above 0";
  if (rates[0][1] == 0)
    return "the first piece of '/workload/rates' has rate 0, but the first request arrives at its beginning; move the "
           "pause to the end of the list, which repeats";
  if (rates_of(rates).mean() < kLeastOfPieces)
    return "'/workload/rates' lets less than 0.001 requests arrive per second on average; shorten its pauses";
  return "";
}

std::string rate_key_of(const json& run) {
  const json workload = run.value("workload", json::object());
  for (const char* key : {"rate", "rates"})
    if (workload.contains(key) && !workload[key].is_null()) return std::string("/workload/") + key;
  return "";
}

std::optional<ArrivalRate> arrival_rate_of(const json& run) {
  const std::string key = rate_key_of(run);
  if (key.empty()) return std::nullopt;
  const json& given = run.at(json::json_pointer(key));
  if (key == "/workload/rate") return ArrivalRate(given.get<double>());
  if (const std::string refusal = refusal_of_rates(given); !refusal.empty()) throw Error(refusal);
  return rates_of(given);
}

}  // namespace foretoken
