"""Pydantic AI's type checks at their usual speed in workflow code.

While the SDK's sandbox runs a workflow, `isinstance` is a function of the SDK in Python, for all code of the thread,
also that of modules which are passed through. A check takes twenty times as long, and Pydantic AI makes some thirty per
message and step: in a long run that was more than half of a workflow task. What the function does, to look through the
sandbox's proxies, the interpreter's own check does as well, because the proxies have `__class__` and
`__instancecheck__`.

So the modules of Pydantic AI get the interpreter's `isinstance` as a name of their own, which Python finds before the
built-in one. The sandbox still refuses whatever it refused.
"""

from __future__ import annotations

import sys
from typing import Final

_ISINSTANCE: Final = isinstance
_PACKAGES: Final = frozenset({'pydantic_ai', 'pydantic_graph', 'harness_temporal'})
"""Passed through the sandbox, so that it shares these modules with the rest of the process."""


def use_native_checks() -> None:
    """Let the modules that are imported by now check types natively. Done again, it adds those that came since."""
    for name, module in [*sys.modules.items()]:
        if name.partition('.')[0] in _PACKAGES:
            vars(module).setdefault('isinstance', _ISINSTANCE)
