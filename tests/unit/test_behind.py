"""What a run has behind it is told to that run alone."""

from __future__ import annotations

from harness_temporal.step_persistence.context import Behind, continuing, take_behind


def test_it_is_given_once_and_only_to_the_capability_that_it_is_of() -> None:
    mine, others = Behind(stored_messages=3), Behind(continued={'run': {}})
    with continuing({'mine': mine, 'others': others}):
        assert take_behind('further') == take_behind(None) == Behind()
        assert take_behind('mine') == mine
        assert take_behind('mine') == Behind(), 'another run that starts within the first'
        with continuing({}):
            assert take_behind('others') == Behind()
        assert take_behind('others') == others
    assert take_behind('mine') == Behind()
