"""Chat templates in the style of the published families, written for these tests; the published ones lie elsewhere.

Each says which tokens its family knows as special, how an answer ends, and whether it begins a text with a BOS.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MARKS", "OWN", "PUBLISHED", "Family"]


@dataclass(frozen=True)
class Family:
    """A template with what must be known of it to check it."""

    source: str
    end: str
    marks: tuple[str, ...] = ()
    bos: str = "<s>"
    eos: str = "</s>"
    begins: bool = False
    """Whether every text under it begins with exactly one BOS."""


IM = ("<|im_start|>", "<|im_end|>")
_IN_TURN = (
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
)
_CHATML = "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}"
_ASK = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

OWN = {
    "chatml": Family("{% for m in messages %}" + _CHATML + "{% endfor %}" + _ASK, "<|im_end|>", IM),
    "chatml with a default system prompt": Family(
        "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
        "{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{% endif %}" + _CHATML + "{% endfor %}" + _ASK,
        "<|im_end|>",
        IM,
    ),
    "chatml with generation": Family(
        "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n"
        "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{{ '\\n' }}"
        "{% else %}" + _CHATML + "{% endif %}{% endfor %}" + _ASK,
        "<|im_end|>",
        IM,
    ),
    "chatml with tools": Family(
        "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}"
        "{% endif %}<tools>{% for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}\n</tools><|im_end|>\n"
        "{% elif messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n{% endif %}"
        "{% for m in messages %}{% if m.role == 'system' and loop.first %}{% elif m.role == 'tool' %}"
        "<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
        "{% elif m.tool_calls %}<|im_start|>assistant\n{{ m.content }}{% for call in m.tool_calls %}"
        "\n<tool_call>\n{\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}"
        "\n</tool_call>{% endfor %}<|im_end|>\n"
        "{% else %}" + _CHATML + "{% endif %}{% endfor %}" + _ASK,
        "<|im_end|>",
        IM,
    ),
    "chatml that drops earlier thoughts": Family(
        "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        "{% for m in messages %}{% if m.role == 'assistant' %}{% set c = m.content %}"
        "{% if loop.index0 < ns.last and '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\\n') %}"
        "{% endif %}<|im_start|>assistant\n{{ c }}<|im_end|>\n{% else %}" + _CHATML + "{% endif %}{% endfor %}" + _ASK,
        "<|im_end|>",
        IM,
    ),
    "chatml that begins to think": Family(
        "{% for m in messages %}{% if m.role == 'assistant' %}{% set c = m.content %}"
        "{% if '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
        "<|im_start|>assistant\n{% if loop.last %}<think>\n\n</think>\n\n{% endif %}{{ c }}<|im_end|>\n"
        "{% else %}" + _CHATML + "{% endif %}{% endfor %}" + _ASK,
        "<|im_end|>",
        IM,
    ),
    "llama 2": Family(
        "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set sys = messages[0]['content'] %}"
        "{% else %}{% set rest = messages %}{% set sys = false %}{% endif %}{% for m in rest %}" + _IN_TURN
        + "{% if loop.index0 == 0 and sys != false %}"
        "{% set content = '<<SYS>>\\n' + sys + '\\n<</SYS>>\\n\\n' + m['content'] %}"
        "{% else %}{% set content = m['content'] %}{% endif %}"
        "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
        "{% elif m['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
        "</s>",
    ),
    "llama 3": Family(
        "{% for m in messages %}{% set content = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n'"
        " + m['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
        "{% endif %}{{ content }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
        "<|eot_id|>",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>", "<|end_of_text|>"),
        "<|begin_of_text|>",
        "<|end_of_text|>",
        True,
    ),
    "mistral v1": Family(
        "{{ bos_token }}{% for m in messages %}" + _IN_TURN
        + "{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
        "{% elif m['role'] == 'assistant' %}{{ m['content'] + eos_token }}"
        "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
        "</s>",
        begins=True,
    ),
    "mistral v3": Family(
        "{% if messages[0]['role'] == 'system' %}{% set sys = messages[0]['content'] %}{% set rest = messages[1:] %}"
        "{% else %}{% set rest = messages %}{% endif %}{{ bos_token }}{% for m in rest %}"
        "{% if m['role'] == 'user' %}{% if tools and loop.last %}{{ '[AVAILABLE_TOOLS]' }}{{ tools | tojson }}"
        "{{ '[/AVAILABLE_TOOLS]' }}{% endif %}"
        "{% if loop.last and sys is defined %}{{ '[INST]' + sys + '\\n\\n' + m['content'] + '[/INST]' }}"
        "{% else %}{{ '[INST]' + m['content'] + '[/INST]' }}{% endif %}"
        "{% elif m['role'] == 'tool' %}{{ '[TOOL_RESULTS]' + m['content'] + '[/TOOL_RESULTS]' }}"
        "{% else %}{{ ' ' + m['content'] | trim + eos_token }}{% endif %}{% endfor %}",
        "</s>",
        ("[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        begins=True,
    ),
    "gemma": Family(
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for m in messages %}" + _IN_TURN
        + "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
        "{{ '<start_of_turn>' + role + '\\n' + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
        "<end_of_turn>",
        ("<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>"),
        "<bos>",
        "<eos>",
        True,
    ),
    "phi 3": Family(
        "{% for m in messages %}{{ '<|' + m['role'] + '|>' + '\\n' + m['content'] + '<|end|>' + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}",
        "<|end|>",
        ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"),
        eos="<|endoftext|>",
    ),
    "zephyr": Family(
        "{% for m in messages %}\n{% if m['role'] == 'user' %}\n{{ '<|user|>\\n' + m['content'] + eos_token }}\n"
        "{% elif m['role'] == 'system' %}\n{{ '<|system|>\\n' + m['content'] + eos_token }}\n"
        "{% elif m['role'] == 'assistant' %}\n{{ '<|assistant|>\\n' + m['content'] + eos_token }}\n{% endif %}\n"
        "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
        "</s>",
    ),
    "vicuna": Family(
        "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] + ' ' }}{% endif %}{% for m in messages %}"
        "{% if m['role'] == 'user' %}{{ 'USER: ' + m['content'] + ' ' }}"
        "{% elif m['role'] == 'assistant' %}{{ 'ASSISTANT: ' + m['content'] + '</s>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
        "</s>",
    ),
    "alpaca": Family(
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] + '\\n\\n' }}"
        "{% elif m['role'] == 'user' %}{{ '### Instruction:\\n' + m['content'].strip() + '\\n\\n' }}"
        "{% elif m['role'] == 'assistant' %}{{ '### Response:\\n' + m['content'].strip() + eos_token + '\\n\\n' }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}",
        "</s>",
        begins=True,
    ),
    "deepseek": Family(
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}"
        "{% elif m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}{% elif m['role'] == 'assistant' %}"
        "{% set c = m['content'] %}{% if '</think>' in c %}{% set c = c.split('</think>')[-1] %}{% endif %}"
        "{{ '<｜Assistant｜>' + c + '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}",
        "<｜end▁of▁sentence｜>",
        ("<｜User｜>", "<｜Assistant｜>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        True,
    ),
    "command r": Family(
        "{{ bos_token }}{% for m in messages %}{% set role = {'system': 'SYSTEM', 'user': 'USER', 'tool': 'SYSTEM',"
        " 'assistant': 'CHATBOT'}[m['role']] %}{{ '<|START_OF_TURN_TOKEN|><|' + role + '_TOKEN|>'"
        " + m['content'].strip() + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}",
        "<|END_OF_TURN_TOKEN|>",
        ("<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>",
         "<BOS_TOKEN>"),
        "<BOS_TOKEN>",
        "<|END_OF_TURN_TOKEN|>",
        True,
    ),
    "openchat": Family(
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] + '<|end_of_turn|>' }}"
        "{% else %}{{ 'GPT4 Correct ' + m['role'].title() + ': ' + m['content'] + '<|end_of_turn|>' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %}",
        "<|end_of_turn|>",
        ("<|end_of_turn|>",),
        begins=True,
    ),
    "chatglm": Family(
        "{{ '[gMASK]sop' }}{% for m in messages %}{{ '<|' + m['role'] + '|>\\n ' + m['content'] }}"
        "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
        "</s>",
        ("[gMASK]", "<|system|>", "<|user|>", "<|assistant|>"),
    ),
    "granite": Family(
        "{% for m in messages %}{{ '<|start_of_role|>' + m['role'] + '<|end_of_role|>' + m['content']"
        " + '<|end_of_text|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}",
        "<|end_of_text|>",
        ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"),
        eos="<|end_of_text|>",
    ),
    "no template of its own": Family("", "<|im_end|>", IM),
    "marks that are plain text": Family(
        "{% for m in messages %}{{ '### ' + m['role'].upper() + '\\n' + m['content'] + '\\n### END\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '### ASSISTANT\\n' }}{% endif %}",
        "\n### END",
    ),
}  # fmt: skip

_LLAMA = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|begin_of_text|>", "<|python_tag|>")
PUBLISHED = {
    "HuggingFaceTB-SmolLM3-3B": Family("", "<|im_end|>", IM),
    "Qwen-Qwen2.5-7B-Instruct": Family("", "<|im_end|>", IM),
    "Qwen-Qwen3-0.6B": Family("", "<|im_end|>", IM),
    "google-gemma-2-2b-it": Family(
        "", "<end_of_turn>", ("<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>"), "<bos>", "<eos>", True
    ),
    "meta-llama-Llama-3.1-8B-Instruct": Family("", "<|eot_id|>", _LLAMA, "<|begin_of_text|>", "<|eot_id|>", True),
}
MARKS = tuple(
    dict.fromkeys(
        mark for family in (*OWN.values(), *PUBLISHED.values()) for mark in (*family.marks, family.bos, family.eos)
    )
)
"""Every special token of every family: a vocabulary is given all of them."""
