"""The demo in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from harness_temporal.cli.demo.report import DemoReport
from harness_temporal.cli.demo.scene import Kill, Scene, Step, StepStatus

_STYLES: dict[StepStatus, tuple[str, str]] = {
    'running': ('running', 'yellow'),
    'done': ('done', 'green'),
    'failed': ('failed', 'red'),
    'killed': ('died with its worker', 'bold red'),
    'unknown': ('outcome unknown, not run again', 'bold magenta'),
}


@contextmanager
def live_view(console: Console) -> Generator[Callable[[Scene], None]]:
    """Give a function that shows a scene in place of the one before."""
    with Live(console=console, refresh_per_second=10) as live:
        spinner = Spinner('dots')
        yield lambda scene: live.update(_render(scene, spinner))
    if not console.is_terminal:
        # There the last frame is printed without its line end.
        console.print()


def show_report(console: Console, report: DemoReport, *, server_stays: bool) -> None:
    """Print how the show ended."""
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style='bold', no_wrap=True)
    lines.add_column(overflow='fold')
    lines.add_row('answer', Text(report.output))
    lines.add_row('payments made', str(report.effects))
    for effect in report.unresolved:
        lines.add_row('unresolved effect', Text(f'{effect.tool} ({effect.tool_call_id}, step {effect.step})'))
        lines.add_row('', Text(f'{effect.effect}'))
        lines.add_row('', Text(f'idempotency key {effect.idempotency_key}'))
    lines.add_row('recovered in', ', '.join(f'{seconds:.1f} s' for seconds in report.recovery_s))
    lines.add_row('history', f'{report.history_events} events, {report.history_bytes:,} bytes')
    title = 'The run survived both kills; the payment was made once.' if report.ok else 'Not as it should be.'
    console.print(Panel(lines, title=title, border_style='green' if report.ok else 'red'))
    # Outside the panel, whose lines would break the address.
    console.print(Text(f'Temporal UI: {report.ui}'), soft_wrap=True)
    note = (
        'The server is still running; stop it with Ctrl-C.'
        if server_stays
        else 'Use --keep to leave its server running.'
    )
    console.print(note)


def _render(scene: Scene, spinner: Spinner) -> RenderableType:
    table = Table('step', 'what', 'attempt', 'status', 'seconds', expand=True)
    for item in scene.story():
        if isinstance(item, Step):
            words, style = _STYLES[item.status]
            seconds = f'{item.seconds:.2f}' if item.seconds is not None else ''
            table.add_row(str(item.index), item.what, str(item.attempt), Text(words, style), seconds)
        else:
            table.add_row('', Text('SIGKILL', 'bold red'), '', Text(_told(item), 'red'), '')
    if scene.now is None:
        return table
    spinner.update(text=scene.now)
    return Group(table, spinner, Text(scene.ui, style=f'link {scene.ui}') if scene.ui else '')


def _told(kill: Kill) -> str:
    recovery = f'; recovered in {kill.recovery_s:.1f} s' if kill.recovery_s is not None else ''
    return f'{kill.worker} in the middle of {kill.tool}{recovery}'
