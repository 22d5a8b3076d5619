// Who may ask, and how much: API keys, of which a file holds hashes alone, and the rates of each. This module must not
// know connections.
#pragma once
#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foretoken::serve {

using Hash = std::array<unsigned char, 32>;

// SHA-256 (FIPS 180-4), by OpenSSL.
Hash sha256(std::string_view text);

// An amount that is used up and grows again by time (a token bucket): on average `per_minute` a minute, after a pause
// as much at once.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;
  // 0: no limit.
  explicit RateLimit(double per_minute = 0) : per_minute_(per_minute), left_(per_minute) {}

  // Seconds until `amount` may be used; 0: now. More than a minute's amount is never refused for good: it waits for a
  // full bucket.
  double seconds_until(double amount, Clock::time_point now);
  // Uses it, also where it is not there: then others wait for longer.
  void use(double amount, Clock::time_point now);
  // Of what was used for a request, what it did not need.
  void give_back(double amount, Clock::time_point now);

 private:
  void fill(Clock::time_point now);
  double per_minute_, left_;
  std::optional<Clock::time_point> filled_;
};

struct Rates {
  double requests_per_minute = 0, tokens_per_minute = 0;  // 0: no limit
};

// Whom a key belongs to.
struct Client {
  std::string name;
  Hash hash{};
  RateLimit requests, tokens;
  Rates rates{};
};

class Keys {
 public:
  // Nobody needs a key; all share the rates.
  explicit Keys(const Rates& rates = {});
  // A line of `file` is the SHA-256 of a key in hexadecimal digits, a name, and requests_per_minute=N and
  // tokens_per_minute=N where they are others than `rates`; # begins a comment.
  Keys(const std::filesystem::path& file, const Rates& rates);

  // Of the value of the header Authorization ("Bearer KEY"). Null: no such key. Every known one is compared with it, in
  // a time that does not depend on where they differ (CRYPTO_memcmp).
  Client* find(std::string_view authorization);
  bool needed() const { return needed_; }
  std::size_t size() const { return clients_.size(); }
  const std::vector<Client>& clients() const { return clients_; }  // where none is needed, one for all

 private:
  std::vector<Client> clients_;
  bool needed_ = false;
};

}  // namespace foretoken::serve
