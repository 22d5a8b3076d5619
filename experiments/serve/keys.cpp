#include "experiments/serve/keys.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken::serve {
namespace {

std::optional<Hash> hash_of_digits(const std::string& digits) {
  Hash hash{};
  if (digits.size() != 2 * hash.size() || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos) return {};
  for (std::size_t i = 0; i < hash.size(); ++i)
    hash[i] = static_cast<unsigned char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  return hash;
}

// "requests_per_minute=60".
bool read_rate(const std::string& word, const std::string& key, double& rate) {
  if (!word.starts_with(key + "=")) return false;
  std::istringstream number(word.substr(key.size() + 1));
  return number >> rate && number.eof() && rate >= 0 && std::isfinite(rate);
}

Client client_of(std::istringstream& words, const Hash& hash, Rates rates, const std::string& where) {
  std::string name, word;
  if (!(words >> name)) throw Error(where + " has a hash without a name; write whose it is behind it");
  while (words >> word)
    if (!read_rate(word, "requests_per_minute", rates.requests_per_minute) &&
        !read_rate(word, "tokens_per_minute", rates.tokens_per_minute))
      throw Error(where + " has '" + word +
                  "'; behind the name may stand requests_per_minute=N and "
                  "tokens_per_minute=N");
  return {name, hash, RateLimit(rates.requests_per_minute), RateLimit(rates.tokens_per_minute), rates};
}

}  // namespace

Hash sha256(std::string_view text) {
  Hash hash{};
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), hash.data(), &size, EVP_sha256(), nullptr) != 1 || size != hash.size())
    throw Error("OpenSSL computes no SHA-256 here, so keys cannot be checked; is it in a mode that forbids it?");
  return hash;
}

void RateLimit::fill(Clock::time_point now) {
  if (filled_)
    left_ = std::min(per_minute_, left_ + per_minute_ * std::chrono::duration<double>(now - *filled_).count() / 60);
  filled_ = now;
}

double RateLimit::seconds_until(double amount, Clock::time_point now) {
  if (per_minute_ <= 0) return 0;
  fill(now);
  return std::max(0.0, (std::min(amount, per_minute_) - left_) * 60 / per_minute_);
}

void RateLimit::use(double amount, Clock::time_point now) {
  if (per_minute_ <= 0) return;
  fill(now);
  left_ -= amount;
}

void RateLimit::give_back(double amount, Clock::time_point now) {
  if (per_minute_ <= 0) return;
  fill(now);
  left_ = std::min(per_minute_, left_ + amount);
}

Keys::Keys(const Rates& rates) {
  clients_.push_back({"anyone", {}, RateLimit(rates.requests_per_minute), RateLimit(rates.tokens_per_minute), rates});
}

Keys::Keys(const std::filesystem::path& file, const Rates& rates) : needed_(true) {
  std::istringstream lines(read_file(file));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string digits;
    if (!(words >> digits)) continue;
    const std::string where = file.string() + ", line " + std::to_string(number) + ",";
    const std::optional<Hash> hash = hash_of_digits(digits);
    if (!hash)
      throw Error(where +
                  " begins with no SHA-256, which has 64 hexadecimal digits; printf %s KEY | sha256sum "
                  "prints that of a key");
    clients_.push_back(client_of(words, *hash, rates, where));
  }
  if (clients_.empty()) throw Error(file.string() + " has no key, so nobody could ask; write one line for each");
}

Client* Keys::find(std::string_view authorization) {
  if (!needed_) return &clients_.front();
  constexpr std::string_view kScheme = "Bearer ";
  if (!authorization.starts_with(kScheme)) return nullptr;
  const Hash given = sha256(authorization.substr(kScheme.size()));
  Client* found = nullptr;
  for (Client& client : clients_)
    if (CRYPTO_memcmp(client.hash.data(), given.data(), given.size()) == 0) found = &client;
  return found;
}

}  // namespace foretoken::serve
