"""The four tools of a memory. A model names notes with them, never a notebook."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.tools import RunContext, Tool
from pydantic_ai.toolsets import FunctionToolset

from harness_temporal.errors import NoteError, NoteNotFoundError, NotStorableError
from harness_temporal.identity import tool_call_key
from harness_temporal.memory.notes import MAIN, Append, Delete, Edit, Notebook, Replace
from harness_temporal.memory.protocol import MemoryStore
from harness_temporal.memory.search import QUERY_LIMIT, Ranker, search
from harness_temporal.tools import recovery_retryable

READ_CHARACTERS: Final = 16_000
"""How much of a note one call of the tool gives, in characters."""


@dataclass(frozen=True)
class MemoryTools:
    """The bodies of the tools. On a durable engine they run in tool units, on the worker."""

    store: MemoryStore
    notebook: Callable[[RunContext[Any]], Notebook]
    rank: Ranker | None

    # The model reads these docstrings; the context is not its business.

    async def write(  # noqa: D417
        self,
        ctx: RunContext[Any],
        text: str,
        note: str = MAIN,
        old: str | None = None,
        revision: str | None = None,
    ) -> dict[str, Any]:
        """Keep something in your memory for later runs.

        Without `old`, the text is added at the end of the note, which is made if it is not there. With `old`, the text
        takes the place of that passage. The note `main` is shown with every request: keep it short, and put details
        into notes of their own.

        Args:
            text: What to write. With `old`, an empty text removes the passage.
            note: The name of the note: lower-case letters, digits, `_` and `-`.
            old: A passage that is in the note exactly once.
            revision: The note's revision as it was read. Nothing is written if the note has changed since.
        """
        edit = Append(text, revision) if old is None else Replace(old, text, revision)
        return {'note': note, 'revision': await self._edit(ctx, note, edit)}

    async def read(self, ctx: RunContext[Any], note: str = MAIN, start: int = 0) -> dict[str, Any]:  # noqa: D417
        """Read a note of your memory.

        Args:
            note: The name of the note.
            start: How many characters to skip: for a long note, what the last answer gave as `next_start`.
        """
        with _told_to_the_model():
            found = await self.store.read(self.notebook(ctx), note)
            if found is None:
                raise NoteNotFoundError(note)
        start = max(0, start)
        end = start + READ_CHARACTERS
        answer = {'note': note, 'revision': found.revision, 'text': found.text[start:end]}
        return answer | {'next_start': end} if end < len(found.text) else answer

    async def delete(self, ctx: RunContext[Any], note: str, revision: str | None = None) -> dict[str, Any]:  # noqa: D417
        """Delete a whole note of your memory.

        Args:
            note: The name of the note.
            revision: The note's revision as it was read. Nothing is deleted if the note has changed since.
        """
        await self._edit(ctx, note, Delete(revision))
        return {'note': note, 'deleted': True}

    async def search(self, ctx: RunContext[Any], query: str) -> dict[str, Any]:  # noqa: D417
        """Search all notes of your memory.

        Args:
            query: What to look for, in at most 200 characters.
        """
        query = query.strip()
        if not 0 < len(query) <= QUERY_LIMIT:
            raise ToolFailed(f'A query has from 1 to {QUERY_LIMIT} characters.')
        with _told_to_the_model():
            found = await search(self.store, self.notebook(ctx), query, rank=self.rank)
        return {'hits': [asdict(hit) for hit in found.hits], 'complete': found.is_complete}

    async def _edit(self, ctx: RunContext[Any], note: str, edit: Edit) -> str:
        key = tool_call_key(
            run_id=ctx.run_id or '',
            step_index=ctx.run_step,
            tool_call_id=ctx.tool_call_id or '',
            tool_name=ctx.tool_name or '',
            arguments={'note': note, **asdict(edit)},
        )
        with _told_to_the_model():
            return await self.store.edit(self.notebook(ctx), note, edit, key=key)


def memory_toolset(tools: MemoryTools, *, id: str | None, prefix: str) -> FunctionToolset[Any]:
    """Return the tools as a toolset. A call that is repeated changes nothing, so each may run again after a crash."""
    bodies: dict[str, Callable[..., Any]] = {
        'write_memory': tools.write,
        'read_memory': tools.read,
        'delete_memory': tools.delete,
        'search_memory': tools.search,
    }
    return FunctionToolset(
        [recovery_retryable(Tool[Any](body, name=f'{prefix}{name}')) for name, body in bodies.items()], id=id
    )


@contextmanager
def _told_to_the_model() -> Generator[None]:
    """Make an answer to the model of what is wrong with its call. What is wrong with the store is raised."""
    try:
        yield
    except (NoteError, NotStorableError) as error:
        raise ToolFailed(str(error)) from error
