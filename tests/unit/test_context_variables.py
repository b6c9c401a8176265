"""A context variable is set for a block of code, also where the collector ends that block."""

from __future__ import annotations

from collections.abc import Generator
from contextvars import ContextVar, copy_context
from types import coroutine

import pytest

from harness_temporal.context_variables import having

variable: ContextVar[str] = ContextVar('variable', default='before')


def test_a_variable_is_what_it_was_after_the_block() -> None:
    with having(variable, 'within'):
        assert variable.get() == 'within'
    assert variable.get() == 'before'
    with pytest.raises(LookupError), having(variable, 'within'):
        raise LookupError
    assert variable.get() == 'before'


@coroutine
def pause() -> Generator[None]:
    yield


async def waiting() -> None:
    with having(variable, 'within'):
        await pause()


def test_a_coroutine_may_be_closed_in_another_context() -> None:
    work, context = waiting(), copy_context()
    context.run(work.send, None)
    assert context[variable] == 'within'
    work.close()
    assert variable.get() == 'before'
