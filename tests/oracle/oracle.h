// What a request must give, computed from the definitions that users read (the pages of experiments/, the comments of
// kernels/distribution.h, kernels/adjustment.h and framework/decode/sequence.h), in double and without speed. It shares
// no code with the product: of its headers only types of data are used, and none of their functions.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "framework/decode/sequence.h"

namespace foretoken::oracle {

using Tokens = std::vector<Token>;
using Numbers = std::vector<double>;
using LogitsAfter = std::function<Numbers(const Tokens& context)>;  // of a model

// Numbers from 0 to n - 1, the same on every machine.
class Below {
 public:
  explicit Below(unsigned seed) : engine_(seed) {}
  int operator()(int n) { return int(engine_() % unsigned(n)); }

 private:
  std::mt19937 engine_;
};

constexpr double kNever = -std::numeric_limits<double>::infinity();

// exp(z) / sum exp(z).
inline Numbers softmax(const Numbers& z) {
  const double peak = *std::max_element(z.begin(), z.end());
  Numbers p;
  for (const double x : z) p.push_back(std::exp(x - peak));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

// Bias, repetition, frequency and presence, in this order. -100 forbids a token, as one bias or as a sum.
inline Numbers adjusted(Numbers z, const Tokens& prompt, const Tokens& output, const Sampling& s) {
  for (Token x = 0; x < int(z.size()); ++x) {
    double bias = 0;
    bool forbidden = false;
    for (const TokenBias& b : s.logit_bias)
      if (b.token == x) bias += double(b.bias), forbidden |= b.bias <= -100;
    const auto times = std::count(output.begin(), output.end(), x), read = std::count(prompt.begin(), prompt.end(), x);
    double& l = z[std::size_t(x)];
    l = forbidden || bias <= -100 ? kNever : l + bias;
    if (times + read > 0) l = l > 0 ? l / double(s.repetition_penalty) : l * double(s.repetition_penalty);
    l -= double(s.frequency_penalty) * double(times);
    if (times > 0) l -= double(s.presence_penalty);
  }
  return z;
}

// The greatest, the lowest among equals.
inline Token best_of(const Numbers& z) { return Token(std::max_element(z.begin(), z.end()) - z.begin()); }

struct Cuts {
  double temperature = 1, top_p = 1, min_p = 0;
  int top_k = 0;
  explicit Cuts(const Sampling& s)
      : temperature(double(s.temperature)), top_p(double(s.top_p)), min_p(double(s.min_p)), top_k(s.top_k) {}
};

inline void keep(Numbers& p, const std::vector<bool>& kept) {
  for (std::size_t x = 0; x < p.size(); ++x)
    if (!kept[x]) p[x] = 0;
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
}

// Temperature, top-k, top-p, min-p: each is applied to the distribution that the one before left. Ties at a threshold
// stay. `nearest`: how far the closest decision was from going the other way, for callers that choose numbers at
// random.
inline Numbers warped(Numbers z, const Cuts& c, double* nearest = nullptr) {
  Numbers p(z.size(), 0);
  if (c.temperature == 0) return p[std::size_t(best_of(z))] = 1, p;
  for (double& x : z) x /= c.temperature;
  p = softmax(z);
  const auto close = [&](double a, double b) {
    if (nearest) *nearest = std::min(*nearest, std::abs(a - b));
  };
  std::vector<bool> kept(p.size());
  const auto above = [&](std::size_t x) { return [&p, x](double y) { return y > p[x]; }; };
  if (c.top_k > 0) {
    for (std::size_t x = 0; x < p.size(); ++x) kept[x] = std::count_if(p.begin(), p.end(), above(x)) < c.top_k;
    keep(p, kept);
  }
  if (c.top_p < 1) {
    for (std::size_t x = 0; x < p.size(); ++x) {
      double mass = 0;
      for (const double y : p) mass += y > p[x] ? y : 0;
      kept[x] = mass < c.top_p;
      close(mass, c.top_p);
    }
    keep(p, kept);
  }
  if (c.min_p > 0) {
    const double least = c.min_p * *std::max_element(p.begin(), p.end());
    for (std::size_t x = 0; x < p.size(); ++x) kept[x] = p[x] >= least, close(p[x], least);
    keep(p, kept);
  }
  return p;
}

// The distribution of the token after `output`.
inline Numbers law(const LogitsAfter& model, const Tokens& prompt, const Tokens& output, const Sampling& s) {
  Tokens context = prompt;
  context.insert(context.end(), output.begin(), output.end());
  return warped(adjusted(model(context), prompt, output, s), Cuts(s));
}

// The log-probability of `token` after `output`: of the model's own distribution, before penalties, biases and warp, or
// of the sampled one.
inline double log_probability(const LogitsAfter& model, const Tokens& prompt, const Tokens& output, Token token,
                              const Sampling& s) {
  if (s.warped_logprobs) return std::log(law(model, prompt, output, s)[std::size_t(token)]);
  Tokens context = prompt;
  context.insert(context.end(), output.begin(), output.end());
  return std::log(softmax(model(context))[std::size_t(token)]);
}

// When an output ends.
struct Ends {
  int max_new_tokens = 64;
  Tokens stop_tokens{};
  std::vector<std::string> stops{};                     // strings
  std::function<std::string(Token)> text_of = nullptr;  // the bytes of a token
};

// Why an output ends with its last token; "running" where it goes on. A stop string ends it with the token that
// completes it, a stop token stays in it. A string that is complete is told before a stop token, and both before the
// length.
inline std::string reason_at_the_end(const Tokens& output, const Ends& e) {
  std::string text;
  for (const Token t : output) text += e.text_of ? e.text_of(t) : "";
  for (const std::string& s : e.stops)
    if (text.find(s) != std::string::npos) return "stop_rule";
  if (std::count(e.stop_tokens.begin(), e.stop_tokens.end(), output.back()) > 0) return "stop_token";
  return int(output.size()) >= e.max_new_tokens ? "length" : "running";
}

// The output of an endless one: the tokens that are kept, and why it ends.
struct Ended {
  Tokens output;
  std::string reason = "running";
  bool operator==(const Ended&) const = default;
};
inline Ended ended(const Tokens& endless, const Ends& e) {
  Ended kept;
  for (const Token t : endless) {
    kept.output.push_back(t);
    kept.reason = reason_at_the_end(kept.output, e);
    if (kept.reason != "running") break;
  }
  return kept;
}

// Greedy decoding.
inline Ended greedy(const LogitsAfter& model, const Tokens& prompt, const Sampling& s, const Ends& e) {
  Ended kept;
  while (kept.reason == "running") {
    const Numbers p = law(model, prompt, kept.output, s);
    kept.output.push_back(best_of(p));
    kept.reason = reason_at_the_end(kept.output, e);
  }
  return kept;
}

}  // namespace foretoken::oracle
