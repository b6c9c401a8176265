"""Backends as parameters of tests. Those with a server have its mark."""

from __future__ import annotations

import pytest

SERVERS = [pytest.param('postgres', marks=pytest.mark.postgres), pytest.param('mongo', marks=pytest.mark.mongo)]
DATABASES = ['sqlite', *SERVERS]
PERSISTENT = ['file', *DATABASES]
