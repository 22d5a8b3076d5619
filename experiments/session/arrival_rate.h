// Requests per second of an open loop: one rate, or pieces of time with a rate each, which repeat. This module must not
// know how arrivals are drawn, nor what is measured.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace foretoken {

class ArrivalRate {
 public:
  struct Piece {
    double seconds = 0, rate = 0;  // requests per second; 0: none arrive
  };

  // The same at all times, above 0.
  ArrivalRate(double rate) : mean_(rate) {}
  // One after the other, and again from the first, whose rate is above 0. Pieces of one rate are that rate.
  explicit ArrivalRate(const std::vector<Piece>& pieces);

  // Over all pieces.
  double mean() const { return mean_; }
  // Seconds until the pieces come again; 0: the rate does not change.
  double period() const { return period_; }
  // Seconds until as many requests as `expected` have arrived on average: the inverse of the integral of the rate. It
  // maps a Poisson process of one request per second onto one of this rate (the inversion method; Cinlar 1975,
  // Introduction to Stochastic Processes, 4.7).
  double when(double expected) const;

 private:
  struct Span {
    double begin, before, until, rate;  // seconds; requests expected before its begin and until its end
  };
  std::vector<Span> spans_;                      // of one period; empty: the rate does not change
  double mean_ = 0, period_ = 0, expected_ = 0;  // in one period
};

// Why a list is none of /workload/rates, as a sentence with the remedy; empty where it is one.
std::string refusal_of_rates(const nlohmann::json& rates);

// The key that says when the requests of a complete run arrive: "/workload/rate", "/workload/rates", or "" of a closed
// loop.
std::string rate_key_of(const nlohmann::json& run);
// None of a closed loop. Rates that are none are an Error.
std::optional<ArrivalRate> arrival_rate_of(const nlohmann::json& run);

}  // namespace foretoken
