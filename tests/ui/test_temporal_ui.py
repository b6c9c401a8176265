"""What a person sees of agents in the Temporal UI, seen in a browser. `docs/temporal-ui.md` shows its pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ui import clerk
from tests.ui.conftest import RUN, THREAD, Office
from tests.ui.pictures import TemporalUI

pytestmark = pytest.mark.ui

LARGEST_PICTURE = 150_000
"""Bytes of a picture that is in the repository."""


def by_id(testid: str) -> str:
    return f'document.querySelector(\'[data-testid="{testid}"]\')'


def by_id_of(id: str) -> str:
    return f"document.getElementById('{id}')"


TABS = by_id_of('timeline-tab')
CHART = "[...document.querySelectorAll('#content svg')].reduce((a, b) => a.clientHeight > b.clientHeight ? a : b)"


def is_small_picture(file: Path) -> bool:
    content = file.read_bytes()
    return content.startswith(b'\x89PNG') and 5_000 < len(content) < LARGEST_PICTURE


async def test_the_list_shows_who_waits_for_a_person(ui: TemporalUI) -> None:
    query = '?query=HarnessAgent%3D%22clerk%22%20AND%20HarnessWaitingForApproval%3Dtrue'
    shown = await ui.shows(query, [RUN, f'thread-{THREAD}', 'HarnessWaitingForApproval'])

    rows = [line.split() for line in shown.splitlines() if line.strip().startswith((RUN, f'thread-{THREAD}'))]
    assert rows == [[f'thread-{THREAD}', clerk.NAME, 'suspended'], [RUN, clerk.NAME, 'suspended']]
    last_row = '[...document.querySelectorAll("tbody tr")].at(-1)'
    assert is_small_picture(await ui.take('workflows', of=by_id('workflow-count'), down_to=last_row))


async def test_the_timeline_says_what_each_activity_did(ui: TemporalUI, office: Office) -> None:
    chart = "[...document.querySelectorAll('h2')].find(it => it.innerText.startsWith('Timeline'))"
    shown = await ui.shows(
        f'{office.run_page}/timeline?sort=ascending',
        ['record that the run begins', 'step 4: refund(order="1042", cents=490', 'record how the run ended'],
    )

    summaries = [line.rpartition(' • ')[2] for line in shown.splitlines() if ' • ' in line]
    attempts = [line for line in shown.splitlines() if ' • ' in line and 'order_courier' in line]
    assert [summary.partition('(')[0] for summary in summaries[:9]] == [
        'record that the run begins',
        'step 1: ask the model',
        'step 1: search_orders',
        'step 2: ask the model',
        'step 2: order_courier',
        'step 3: ask the model',
        'step 3: search_shipments',
        'step 4: ask the model',
        'step 4: refund',
    ]
    assert attempts[0].startswith('2 • '), 'its second attempt found what the first one had begun'
    assert is_small_picture(await ui.take('timeline', of=chart, down_to=CHART, below=64))


async def test_the_details_of_a_run_say_how_each_step_ended(ui: TemporalUI, office: Office) -> None:
    shown = await ui.shows(
        f'{office.run_page}/user-metadata',
        [
            f'{clerk.NAME}: {clerk.PROMPT}',
            f'agent {clerk.NAME} · conversation {RUN}',
            office.run_id,
            '1 with unknown outcome',
            'harness-temporal effects list',
        ],
    )

    steps = [
        [cell.strip() for cell in line.split('\t')] for line in shown.splitlines() if '\t' in line and line[0].isdigit()
    ]
    assert steps == [
        ['4', 'refund(order="1042", cents=490, reason="postage\\nof the first parcel")', 'asked for approval'],
        ['4', 'ask the model', 'done'],
        ['3', 'search_shipments(order="1042")', 'done'],
        ['3', 'ask the model', 'done'],
        [
            '2',
            'order_courier(order="1042", to="Ada Byron, 12 St James’s Square", cents=1250)',
            'outcome unknown: its worker died; look at the outside system',
        ],
        ['2', 'ask the model', 'done'],
        ['1', 'search_orders(query="placed:1/2..2/2 *@example.org", fields=["status","paid_cents"])', 'done'],
        ['1', 'ask the model', 'done'],
    ]
    frame = by_id_of('user-metadata-current-details')
    assert is_small_picture(await ui.take('run-details', of=TABS, down_to=frame))


async def test_the_details_of_a_thread_say_what_it_waits_for_and_what_to_do(ui: TemporalUI, office: Office) -> None:
    await ui.shows(
        f'{office.thread_page}/user-metadata',
        ['Order 1043', 'waiting for approval', f'harness-temporal approve {THREAD} CALL', 'call-4'],
    )
    frame = by_id_of('user-metadata-current-details')
    assert is_small_picture(await ui.take('thread-details', of=TABS, down_to=frame))
