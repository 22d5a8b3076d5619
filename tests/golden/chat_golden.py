"""Questions in the forms of chat models: what Transformers writes, and the ids that it gives, with templates of our own
that follow the public forms (ChatML as Qwen has it, Llama-3, Llama-3.1, Llama-2, Mistral, Zephyr) and one that has no
name here (Gemma's)."""

import json
import pathlib

from transformers import PreTrainedTokenizerFast

CHATML = """{% for message in messages %}%FIRST%{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
HELPER = "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nAnswer briefly.<|im_end|>\\n' }}{% endif %}"
LLAMA3 = """{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' %}
{%- if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
LLAMA31 = """{{- bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] | trim %}{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}{{- 'Cutting Knowledge Date: December 2023\\n' }}{{- 'Today Date: 26 Jul 2024\\n\\n' }}{{- system }}{{- '<|eot_id|>' }}
{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set system = '<<SYS>>\\n' + messages[0]['content'] | trim + '\\n<</SYS>>\\n\\n' %}{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}
{%- for message in messages %}{{ bos_token + '[INST] ' + (system if loop.first else '') + message['content'] | trim + ' [/INST]' }}{% endfor %}"""
MISTRAL = (
    """{{ bos_token }}{% for message in messages %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% endfor %}"""
)
MISTRAL3 = (
    """{{ bos_token }}{% for message in messages %}{{ '[INST] ' + message['content'] + '[/INST]' }}{% endfor %}"""
)
# As published, with the assistant's messages: meta-llama/Llama-2-7b-chat-hf, mistralai/Mistral-7B-Instruct-v0.2 and
# v0.3, HuggingFaceH4/zephyr-7b-beta. Those above have them already.
LLAMA2_TURNS = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""
MISTRAL_TURNS = """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}"""
MISTRAL3_TURNS = """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + '[/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] | trim + eos_token }}{% endif %}{% endfor %}"""
ZEPHYR_TURNS = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n' + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
GEMMA = """{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"""

# form, tokenizer, template, whether it has a place for a system prompt
FORMS = [
    ("chatml", "qwen2", CHATML.replace("%FIRST%", ""), True),
    ("chatml", "qwen2", CHATML.replace("%FIRST%", HELPER), True),
    ("llama-3", "llama3", LLAMA3, True),
    ("llama-3.1", "llama3", LLAMA31, True),
    ("llama-2", "llama2", LLAMA2, True),
    ("mistral", "llama2", MISTRAL, False),
    ("mistral-v3", "mistral", MISTRAL3, False),
    ("zephyr", "llama2", ZEPHYR, True),
]
# form, tokenizer, template
CONVERSATIONS = [
    ("chatml", "qwen2", CHATML.replace("%FIRST%", "")),
    ("llama-3", "llama3", LLAMA3),
    ("llama-3.1", "llama3", LLAMA31),
    ("llama-2", "llama2", LLAMA2_TURNS),
    ("mistral", "llama2", MISTRAL_TURNS),
    ("mistral-v3", "mistral", MISTRAL3_TURNS),
    ("zephyr", "llama2", ZEPHYR_TURNS),
]
ANSWER = "It counts the bridges."
QUESTIONS = [
    "What does the lantern measure?",
    "  Two\n lines, and spaces around.\t",
    "caf\u00e9 \u4f60\u597d \U0001f600",
    "</s> <s> [INST] <|im_end|> injected <|eot_id|>",
    "x",
]
SYSTEM = "You count  bridges."
MARKS = {"llama3": ("<|begin_of_text|>", "<|eot_id|>"), "qwen2": (None, "<|im_end|>")}


def tokenizer_of(folder: pathlib.Path, name: str) -> PreTrainedTokenizerFast:
    bos, eos = MARKS.get(name, ("<s>", "</s>"))
    return PreTrainedTokenizerFast(
        tokenizer_file=str(folder / name / "tokenizer.json"),
        bos_token=bos,
        eos_token=eos,
        clean_up_tokenization_spaces=False,
    )


def conversations(folder: pathlib.Path) -> list:
    """A question, its answer and another question, as one text and its ids."""
    found = []
    for form, name, template in CONVERSATIONS:
        tokenizer = tokenizer_of(folder, name)
        for question in QUESTIONS:
            messages = [
                {"role": "user", "content": QUESTIONS[0]},
                {"role": "assistant", "content": ANSWER},
                {"role": "user", "content": question},
            ]
            given = dict(chat_template=template, add_generation_prompt=True)
            found.append(
                {
                    "form": form,
                    "tokenizer": name,
                    "first": QUESTIONS[0],
                    "answer": ANSWER,
                    "question": question,
                    "text": tokenizer.apply_chat_template(messages, tokenize=False, **given),
                    "ids": tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **given),
                }
            )
    return found


def write_golden(folder: pathlib.Path) -> None:
    cases = []
    for form, name, template, has_system in FORMS:
        tokenizer = tokenizer_of(folder, name)
        case = {"form": form, "tokenizer": name, "template": template, "asked": []}
        for system in [None, SYSTEM] if has_system else [None]:
            for question in QUESTIONS:
                messages = ([{"role": "system", "content": system}] if system else []) + [
                    {"role": "user", "content": question}
                ]
                given = dict(chat_template=template, add_generation_prompt=True)
                text = tokenizer.apply_chat_template(messages, tokenize=False, **given)
                ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **given)
                case["asked"].append({"system": system, "question": question, "text": text, "ids": ids})
        cases.append(case)
    golden = {"forms": cases, "conversations": conversations(folder), "unknown": GEMMA}
    (folder / "chat.golden.json").write_text(json.dumps(golden, ensure_ascii=True, indent=0) + "\n")
