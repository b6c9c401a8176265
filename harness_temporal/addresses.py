"""Which objects a list holds, as bytes: thousands are compared at once, and without asking any whether it is equal.

CPython's `id` is the address of an object, and a list keeps the addresses of its items in one piece of memory. That
piece is read here, with the public layout of a list (`PyListObject` of CPython's `listobject.h`), if the interpreter
that runs has it.
"""

from __future__ import annotations

import ctypes
import struct
import sys

_WIDTH = ctypes.sizeof(ctypes.c_void_p)


class _ListObject(ctypes.Structure):
    _fields_ = (
        ('header', ctypes.c_byte * object.__basicsize__),
        ('length', ctypes.c_ssize_t),
        ('items', ctypes.c_void_p),
        ('allocated', ctypes.c_ssize_t),
    )


def _computed(objects: list[object]) -> bytes:
    return struct.pack(f'{len(objects)}P', *map(id, objects))


def _read(objects: list[object]) -> bytes:
    # More than a hundred times as fast.
    return ctypes.string_at(_ListObject.from_address(id(objects)).items, _WIDTH * len(objects)) if objects else b''


def _can_be_read() -> bool:
    if sys.implementation.name != 'cpython' or ctypes.sizeof(_ListObject) != list.__basicsize__:
        return False
    objects: list[object] = ['x', 1, object()]
    found = _ListObject.from_address(id(objects))
    return found.length == len(objects) <= found.allocated and _read(objects) == _computed(objects)


addresses = _read if _can_be_read() else _computed
"""Return the addresses of a list's items, in their order. An address stays an object's own as long as it is held."""
