from __future__ import annotations

from harness_temporal.recent import Recent


def test_it_is_bounded_by_weight_and_keeps_what_is_used() -> None:
    pieces = Recent[bytes, bytes](100, len)
    for number in range(10):
        pieces.put(b'%d' % number, bytes(30))
        assert pieces.get(b'0') is not None
        assert pieces.weight <= 100
    assert pieces.get(b'5') is None
    assert pieces.get(b'9') is not None


def test_the_weight_follows_what_is_replaced_dropped_and_cleared() -> None:
    pieces = Recent[str, bytes](100, len)
    pieces.put('a', bytes(60))
    pieces.put('a', bytes(10))
    pieces.put('b', bytes(90))
    assert pieces.weight == 100
    assert pieces.get('a') is not None
    pieces.drop('b')
    pieces.drop('b')
    assert pieces.weight == 10
    pieces.clear()
    assert (pieces.weight, pieces.get('a')) == (0, None)


def test_without_a_weight_it_is_bounded_in_number() -> None:
    numbers = Recent[int, str](3)
    for number in range(5):
        numbers.put(number, str(number))
    assert [numbers.get(number) for number in range(5)] == [None, None, '2', '3', '4']
