"""Small templates, each with one trait that breaks a search for answers; written for these tests."""

from dataclasses import dataclass

from template_judge import Marks

SPECIALS = (
    "<|s|>", "<|u|>", "<|a|>", "<|t|>", "<|end|>", "<|stop|>", "<|call|>", "<|tool|>", "<|open|>", "<|sep|>", "</s>",
    "<bos>", "<end_of_turn>", "<eos>", "<s>", "<start_of_turn>", "<|assistant|>", "<|begin_of_text|>",
    "<|end_header_id|>", "<|endoftext|>", "<|end|>", "<|eom_id|>", "<|eot_id|>", "<|im_end|>", "<|im_start|>",
    "<|python_tag|>", "<|start_header_id|>", "<|system|>", "<|user|>", "<｜Assistant｜>", "<｜User｜>",
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "[/AVAILABLE_TOOLS]", "[/INST]", "[/TOOL_RESULTS]",
    "[AVAILABLE_TOOLS]", "[INST]", "[TOOL_RESULTS]",
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A template, what a person reads off it, and how many of the rows it may refuse itself."""

    source: str
    marks: Marks
    eos: str = "<|end|>"
    refused: int = 0
    bos: str = "<s>"


_TOOLS = "{% if tools %}<|s|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|end|>{% endif %}"
_HEAD = _TOOLS + "{% for m in messages %}{% if m.role == 'system' %}<|s|>{{ m.content }}<|end|>{% endif %}"
_USER = "{% if m.role == 'user' %}<|u|>{{ m.content }}<|end|>{% endif %}"
_TOOL = "{% if m.role == 'tool' %}<|t|>{{ m.content }}<|end|>{% endif %}"
_CALLS = "{% for c in m.tool_calls %}<call>{{ c.function.name }}{{ c.function.arguments | tojson }}</call>{% endfor %}"
_SAID = (
    "{% if m.role == 'assistant' %}<|a|>{{ m.content }}{% if m.tool_calls %}" + _CALLS + "{% endif %}<|end|>{% endif %}"
)
_ASK = "{% endfor %}{% if add_generation_prompt %}<|a|>{% endif %}"
_PLAIN = Marks("<|a|>", ("<|end|>",))


def _with(said: str, ask: str = _ASK, user: str = _USER, tool: str = _TOOL) -> str:
    return _HEAD + user + tool + said + ask


KINDS = {
    "plain": Kind(_with(_SAID), _PLAIN),
    "a tool answers within the turn": Kind(
        _with(
            "{% if m.role == 'assistant' %}{% if loop.previtem is not defined or loop.previtem.role != 'tool' %}<|a|>"
            "{% endif %}{{ m.content }}{% if m.tool_calls %}" + _CALLS + "{% else %}<|end|>{% endif %}{% endif %}",
            "{% if loop.last and add_generation_prompt and m.role != 'tool' %}<|a|>{% endif %}{% endfor %}",
            tool="{% if m.role == 'tool' %}<|t|>{{ m.content }}[/RESULT]{% endif %}",
        ),
        _PLAIN,
    ),
    "asks with an open thought": Kind(
        _with(_SAID, "{% endfor %}{% if add_generation_prompt %}<|a|><think>\n{% endif %}"), _PLAIN
    ),
    "asks with a thought that is closed": Kind(
        _with(_SAID, "{% endfor %}{% if add_generation_prompt %}<|a|><think></think>{% endif %}"), _PLAIN
    ),
    "thinks of nothing in the last turn": Kind(
        _with(
            "{% if m.role == 'assistant' %}{% set c = m.content.split('</think>')[-1].lstrip('\n') %}<|a|>"
            "{% if loop.last %}<think>\n\n</think>\n\n{% endif %}{{ c }}"
            "{% if m.tool_calls %}" + _CALLS + "{% endif %}<|end|>{% endif %}",
            "{% endfor %}{% if add_generation_prompt %}<|a|><think>\n{% endif %}",
        ),
        _PLAIN,
    ),
    "asks whether asked or not": Kind(
        _with(_SAID.replace("<|a|>", "<|a|><|open|>"), "{% endfor %}<|a|><|sep|>"), _PLAIN
    ),
    "asks in words": Kind(
        _with(_SAID, "{% endfor %}{% if add_generation_prompt %}<|a|>\nHere is what I think:\n{% endif %}"), _PLAIN
    ),
    "never asks": Kind(_with(_SAID, "{% endfor %}", user=_USER.replace("<|end|>", "<|a|>")).replace(
        "<|a|>{{ m.content }}{% if m.tool", " {{ m.content }}{% if m.tool"), Marks("<|a|>", ("<|end|>",))),
    "a call ends otherwise": Kind(
        _with(
            "{% if m.role == 'assistant' %}<|a|>{{ m.content }}{% if m.tool_calls %}" + _CALLS + "<|call|>"
            "{% else %}<|end|>{% endif %}{% endif %}"
        ),
        Marks("<|a|>", ("<|end|>", "<|call|>")),
    ),
    "the last turn ends otherwise": Kind(
        _with(_SAID.replace("<|end|>", "{% if loop.last %}<|stop|>{% else %}<|end|>{% endif %}")),
        Marks("<|a|>", ("<|end|>", "<|stop|>")),
        "<|stop|>",
    ),
    "ends in several marks": Kind(
        _with(_SAID.replace("<|end|>", "<|open|>said<|sep|><|end|>")), Marks("<|a|>", ("<|open|>said<|sep|><|end|>",))
    ),
    "the next turn is the end": Kind(
        _with(_SAID.replace("<|end|>", ""), user=_USER.replace("<|end|>", ""), tool=_TOOL.replace("<|end|>", "")),
        Marks("<|a|>", ("<|u|>", "<|t|>")),
    ),
    "a tool answers calls only": Kind(
        _with(
            _SAID,
            tool="{% if m.role == 'tool' %}{% if not loop.previtem.tool_calls and loop.previtem.role != 'tool' %}"
            "{{ raise_exception('what did it answer?') }}{% endif %}<|t|>{{ m.content }}<|end|>{% endif %}",
        ),
        _PLAIN,
    ),
    "a tool is named again": Kind(
        _HEAD.replace("{% for m", "{% set ns = namespace(name='') %}{% for m") + _USER
        + "{% if m.tool_calls %}{% set ns.name = m.tool_calls[0].function.name %}{% endif %}"
        + _TOOL.replace("<|t|>", "<|t|>{{ ns.name }}:") + _SAID + _ASK,
        _PLAIN,
    ),
    "wants numbered calls": Kind(
        _with(
            _SAID.replace(
                "{{ c.function.name }}",
                "{% if c.id | length != 9 %}{{ raise_exception('nine!') }}{% endif %}{{ c.function.name }}[{{ c.id }}]",
            )
        ),
        _PLAIN,
    ),
    "wants arguments as text": Kind(
        _with(_SAID.replace("{{ c.function.arguments | tojson }}", "{{ ': ' + c.function.arguments }}")), _PLAIN
    ),
    "wants a list of functions": Kind(
        _with(_SAID).replace("{% if tools %}<|s|>", "<|s|>").replace("{% endfor %}<|end|>{% endif %}",
                                                                  "{% endfor %}{{ tools | length }}<|end|>", 1),
        _PLAIN,
    ),
    "escapes what is said": Kind(_with(_SAID.replace("{{ m.content }}", "{{ m.content | tojson }}")), _PLAIN),
    "escapes for the web": Kind(_with(_SAID.replace("{{ m.content }}", "{{ m.content | e }}")), _PLAIN),
    "drops what is said beside a call": Kind(
        _with(_SAID.replace("{{ m.content }}", "{% if not m.tool_calls %}{{ m.content | trim }}{% endif %}")), _PLAIN
    ),
    "says what is beside a call behind its answer": Kind(
        _with(
            "{% if m.role == 'assistant' %}<|a|>{% if m.tool_calls %}" + _CALLS + "{% if loop.nextitem is defined "
            "and loop.nextitem.role == 'tool' %}<|t|>{{ loop.nextitem.content }}[/RESULT]{% endif %}{% endif %}"
            "{{ m.content }}<|end|>{% endif %}",
            tool="{% if m.role == 'tool' and loop.previtem.role == 'tool' %}<|t|>{{ m.content }}<|end|>{% endif %}",
        ),
        _PLAIN,
    ),
    "shows no calls": Kind(_with("{% if m.role == 'assistant' %}<|a|>{{ m.content }}<|end|>{% endif %}"), _PLAIN),
}  # fmt: skip

DEFIANT = {
    "changes the turns": _with(_SAID.replace("{{ m.content }}", "{{ m.content | length }}: {{ m.content }}")),
    "writes an answer twice": _with(_SAID)
    + "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}{% endif %}{% endfor %}",
    "leaves an answer out": _with(_SAID.replace("m.role == 'assistant'", "m.role == 'assistant' and loop.last")),
}
"""Templates of which no mask is certain, by what is said of them."""


_IN_TURN = (
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
)
_CHATML = "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}"
_ASK = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

FAMILIES = {
    "chatml with generation": Kind(
        "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n"
        "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{{ '\\n' }}"
        "{% else %}" + _CHATML + "{% endif %}{% endfor %}" + _ASK,
        Marks("<|im_start|>assistant\n", ("<|im_end|>",)), "</s>",
    ),
    "chatml with tools": Kind(
        "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}"
        "{% endif %}<tools>{% for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}\n</tools><|im_end|>\n"
        "{% elif messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n{% endif %}"
        "{% for m in messages %}{% if m.role == 'system' and loop.first %}{% elif m.role == 'tool' %}"
        "<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
        "{% elif m.tool_calls %}<|im_start|>assistant\n{{ m.content }}{% for call in m.tool_calls %}"
        "\n<tool_call>\n{\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}"
        "\n</tool_call>{% endfor %}<|im_end|>\n"
        "{% else %}" + _CHATML + "{% endif %}{% endfor %}" + _ASK,
        Marks("<|im_start|>assistant\n", ("<|im_end|>",)), "</s>",
    ),
    "chatml that drops earlier thoughts": Kind(
        "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        "{% for m in messages %}{% if m.role == 'assistant' %}{% set c = m.content %}"
        "{% if loop.index0 < ns.last and '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\\n') %}"
        "{% endif %}<|im_start|>assistant\n{{ c }}<|im_end|>\n{% else %}" + _CHATML + "{% endif %}{% endfor %}" + _ASK,
        Marks("<|im_start|>assistant\n", ("<|im_end|>",)), "</s>",
    ),
    "chatml that begins to think": Kind(
        "{% for m in messages %}{% if m.role == 'assistant' %}{% set c = m.content %}"
        "{% if '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
        "<|im_start|>assistant\n{% if loop.last %}<think>\n\n</think>\n\n{% endif %}{{ c }}<|im_end|>\n"
        "{% else %}" + _CHATML + "{% endif %}{% endfor %}" + _ASK,
        Marks("<|im_start|>assistant\n", ("<|im_end|>",)), "</s>",
    ),
    "llama 2": Kind(
        "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set sys = messages[0]['content'] %}"
        "{% else %}{% set rest = messages %}{% set sys = false %}{% endif %}{% for m in rest %}" + _IN_TURN
        + "{% if loop.index0 == 0 and sys != false %}"
        "{% set content = '<<SYS>>\\n' + sys + '\\n<</SYS>>\\n\\n' + m['content'] %}"
        "{% else %}{% set content = m['content'] %}{% endif %}"
        "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
        "{% elif m['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
        Marks("[/INST]", ("</s>",)), "</s>", refused=6,
    ),
    "mistral v3": Kind(
        "{% if messages[0]['role'] == 'system' %}{% set sys = messages[0]['content'] %}{% set rest = messages[1:] %}"
        "{% else %}{% set rest = messages %}{% endif %}{{ bos_token }}{% for m in rest %}"
        "{% if m['role'] == 'user' %}{% if tools and loop.last %}{{ '[AVAILABLE_TOOLS]' }}{{ tools | tojson }}"
        "{{ '[/AVAILABLE_TOOLS]' }}{% endif %}"
        "{% if loop.last and sys is defined %}{{ '[INST]' + sys + '\\n\\n' + m['content'] + '[/INST]' }}"
        "{% else %}{{ '[INST]' + m['content'] + '[/INST]' }}{% endif %}"
        "{% elif m['role'] == 'tool' %}{{ '[TOOL_RESULTS]' + m['content'] + '[/TOOL_RESULTS]' }}"
        "{% else %}{{ ' ' + m['content'] | trim + eos_token }}{% endif %}{% endfor %}",
        Marks("[/INST]", ("</s>",)), "</s>",
    ),
    "gemma": Kind(
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for m in messages %}" + _IN_TURN
        + "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
        "{{ '<start_of_turn>' + role + '\\n' + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
        Marks("<start_of_turn>model\n", ("<end_of_turn>",)), "<eos>", bos="<bos>", refused=6,
    ),
    "phi 3": Kind(
        "{% for m in messages %}{{ '<|' + m['role'] + '|>' + '\\n' + m['content'] + '<|end|>' + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}",
        Marks("<|assistant|>\n", ("<|end|>",)), "<|endoftext|>",
    ),
    "zephyr": Kind(
        "{% for m in messages %}\n{% if m['role'] == 'user' %}\n{{ '<|user|>\\n' + m['content'] + eos_token }}\n"
        "{% elif m['role'] == 'system' %}\n{{ '<|system|>\\n' + m['content'] + eos_token }}\n"
        "{% elif m['role'] == 'assistant' %}\n{{ '<|assistant|>\\n' + m['content'] + eos_token }}\n{% endif %}\n"
        "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
        Marks("<|assistant|>\n", ("</s>",)), "</s>",
    ),
    "vicuna": Kind(
        "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] + ' ' }}{% endif %}{% for m in messages %}"
        "{% if m['role'] == 'user' %}{{ 'USER: ' + m['content'] + ' ' }}"
        "{% elif m['role'] == 'assistant' %}{{ 'ASSISTANT: ' + m['content'] + '</s>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
        Marks("ASSISTANT:", ("</s>",)), "</s>",
    ),
    "alpaca": Kind(
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] + '\\n\\n' }}"
        "{% elif m['role'] == 'user' %}{{ '### Instruction:\\n' + m['content'].strip() + '\\n\\n' }}"
        "{% elif m['role'] == 'assistant' %}{{ '### Response:\\n' + m['content'].strip() + eos_token + '\\n\\n' }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}",
        Marks("### Response:\n", ("</s>",)), "</s>",
    ),
    "deepseek": Kind(
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}"
        "{% elif m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}{% elif m['role'] == 'assistant' %}"
        "{% set c = m['content'] %}{% if '</think>' in c %}{% set c = c.split('</think>')[-1] %}{% endif %}"
        "{{ '<｜Assistant｜>' + c + '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}",
        Marks("<｜Assistant｜>", ("<｜end▁of▁sentence｜>",)), "<｜end▁of▁sentence｜>", bos="<｜begin▁of▁sentence｜>",
    ),
    "no template of its own": Kind("", Marks("<|im_start|>assistant\n", ("<|im_end|>",)), "</s>"),
    "marks that are plain text": Kind(
        "{% for m in messages %}{{ '### ' + m['role'].upper() + '\\n' + m['content'] + '\\n### END\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '### ASSISTANT\\n' }}{% endif %}",
        Marks("### ASSISTANT\n", ("\n### END",)), "</s>",
    ),
}  # fmt: skip
"""Templates in the style of the published families, written for these tests."""

_IM = Marks("<|im_start|>assistant\n", ("<|im_end|>",))
PUBLISHED = {
    "HuggingFaceTB-SmolLM3-3B": Kind("", _IM, "<|im_end|>"),
    "Qwen-Qwen2.5-7B-Instruct": Kind("", _IM, "<|im_end|>"),
    "Qwen-Qwen3-0.6B": Kind("", _IM, "<|im_end|>"),
    "google-gemma-2-2b-it": Kind("", Marks("<start_of_turn>model\n", ("<end_of_turn>",)), "<eos>", 6, "<bos>"),
    "meta-llama-Llama-3.1-8B-Instruct": Kind(
        "", Marks("<|start_header_id|>assistant<|end_header_id|>\n\n", ("<|eot_id|>",)), "<|eot_id|>", 3,
        "<|begin_of_text|>",
    ),
}  # fmt: skip
"""Published templates; their sources lie beside the project."""
