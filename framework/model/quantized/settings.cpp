#include "framework/model/quantized/settings.h"

#include "framework/text/json_file.h"

namespace foretoken {

void expect_empty(const Fields& settings, const char* key, const std::string& why) {
  if (const auto* value = settings.find(key); value && !value->empty()) settings.refuse(key, why);
}

void refuse_cache_scheme(const Fields& settings) {
  expect_empty(
      settings, "kv_cache_scheme",
      "caches quantized by a checkpoint are not supported; remove the key, and choose the type of the cache by "
      "the option kv_dtype");
}

void refuse_settings_of_modules(const Fields& settings) {
  expect_empty(settings, "dynamic", "settings of single modules are not supported; choose a checkpoint without them");
}

std::pair<int, int> read_block(const Fields& settings, const char* key) {
  constexpr int kMost = 1 << 24;
  const auto& block = settings.array(key);
  const auto is_size = [](const nlohmann::json& n) { return n.is_number_integer() && n >= 1 && n <= kMost; };
  if (block.size() != 2 || !is_size(block[0]) || !is_size(block[1]))
    settings.refuse(key, "must be two sizes above 0, of outputs and of inputs; download config.json again");
  return {block[0], block[1]};
}

}  // namespace foretoken
