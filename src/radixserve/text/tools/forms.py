"""The forms of tool calls that are known, and which one a model uses."""

from radixserve.text.tools.form import ToolForm
from radixserve.text.tools.hermes import HermesForm
from radixserve.text.tools.llama3 import Llama3Form
from radixserve.text.tools.mistral import MistralForm
from radixserve.text.tools.pythonic import PythonicForm

_FORMS: list[ToolForm] = [HermesForm(), Llama3Form(), MistralForm(), PythonicForm()]
TOOL_FORMS = {form.name: form for form in _FORMS}

_SIGNS = {
    "hermes": ("<tool_call>",),
    "mistral": ("[TOOL_CALLS]",),
    "pythonic": ("<|python_start|>", "func_name1("),
    "llama3": ("<|python_tag|>", '"parameters":'),
}
"""What the chat template of a model that was trained on a form says."""


def find_tool_form(template: str | None) -> ToolForm:
    """The form that a chat template's source speaks of; hermes where it speaks of none, which the model is then taught."""
    for name, signs in _SIGNS.items():
        if template and any(sign in template for sign in signs):
            return TOOL_FORMS[name]
    return TOOL_FORMS["hermes"]
