// Settings of a quantization_config that several methods have. This module must not know the methods.
#pragma once
#include <string>
#include <utility>

namespace foretoken {

class Fields;

// Throws Error unless the key is absent or its value is empty. `why`: the end of the sentence.
void expect_empty(const Fields& settings, const char* key, const std::string& why);
// What is not supported: a quantized cache (kv_cache_scheme), and modules that differ from the rest (dynamic).
void refuse_cache_scheme(const Fields& settings);
void refuse_settings_of_modules(const Fields& settings);

// The outputs and inputs of a block.
std::pair<int, int> read_block(const Fields& settings, const char* key);

}  // namespace foretoken
