#include "framework/text/chat_forms.h"

namespace foretoken {
namespace {

constexpr const char* kChatMl = R"({% for m in messages %}
{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

constexpr const char* kLlama3 = R"({{ '<|begin_of_text|>' }}
{%- for m in messages %}
{{- '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\n\n' ~ m.content | trim ~ '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})";

// The system message is always there, since it names the dates.
constexpr const char* kLlama31 = R"({% set system = '' %}
{%- if messages[0].role == 'system' %}
{%- set system = messages[0].content | trim %}{% set messages = messages[1:] %}
{%- endif %}
{{- '<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n' }}
{{- 'Today Date: ' ~ strftime_now('%d %b %Y') ~ '\n\n' ~ system ~ '<|eot_id|>' }}
{%- for m in messages %}
{{- '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\n\n' ~ m.content | trim ~ '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})";

constexpr const char* kLlama2 = R"({% set system = '' %}
{%- if messages[0].role == 'system' %}
{%- set system = '<<SYS>>\n' ~ messages[0].content | trim ~ '\n<</SYS>>\n\n' %}{% set messages = messages[1:] %}
{%- endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ ' ' ~ m.content | trim ~ ' </s>' }}
{%- else %}{{ '<s>[INST] ' ~ (system if loop.first else '') ~ m.content | trim ~ ' [/INST]' }}{% endif %}
{%- endfor %})";

constexpr const char* kMistral = R"({{ '<s>' }}
{%- for m in messages %}
{%- if m.role == 'system' %}{{ raise_exception('there are no system messages') }}
{%- elif m.role == 'assistant' %}{{ m.content ~ '</s>' }}
{%- else %}{{ '[INST] ' ~ m.content ~ ' [/INST]' }}{% endif %}
{%- endfor %})";

constexpr const char* kMistral3 = R"({{ '<s>' }}
{%- for m in messages %}
{%- if m.role == 'system' %}{{ raise_exception('there are no system messages') }}
{%- elif m.role == 'assistant' %}{{ ' ' ~ m.content | trim ~ '</s>' }}
{%- else %}{{ '[INST] ' ~ m.content ~ '[/INST]' }}{% endif %}
{%- endfor %})";

constexpr const char* kZephyr = R"({% for m in messages %}
{{ '<|' ~ m.role ~ '|>\n' ~ m.content ~ '</s>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})";

// Vicuna 1.1 to 1.5 as FastChat writes it. The system text stands there unless another, or an empty one, is given.
constexpr const char* kVicuna = R"({% set system = 'A chat between a curious user and an artificial intelligence ' ~
  "assistant. The assistant gives helpful, detailed, and polite answers to the user's questions." %}
{%- if messages[0].role == 'system' %}
{%- set system = messages[0].content | trim %}{% set messages = messages[1:] %}
{%- endif %}
{{- '<s>' ~ (system ~ ' ' if system else '') }}
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ ' ' ~ m.content | trim ~ '</s>' }}
{%- else %}{{ 'USER: ' ~ m.content ~ ' ASSISTANT:' }}{% endif %}
{%- endfor %})";

}  // namespace

const std::vector<ChatForm>& chat_forms() {
  static const std::vector<std::string> kLlama3Marks = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                                        "<|eot_id|>"};
  static const std::vector<ChatForm> kForms = {
      {"chatml", kChatMl, {"<|im_start|>", "<|im_end|>"}},
      {"llama-3", kLlama3, kLlama3Marks},
      {"llama-3.1", kLlama31, kLlama3Marks},
      {"llama-2", kLlama2, {"<s>", "</s>"}},
      {"mistral", kMistral, {"<s>", "</s>"}},
      {"mistral-v3", kMistral3, {"<s>", "</s>", "[INST]", "[/INST]"}},
      {"zephyr", kZephyr, {"</s>"}},
      {"vicuna", kVicuna, {"<s>", "</s>"}},
  };
  return kForms;
}

}  // namespace foretoken
