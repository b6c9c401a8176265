"""`python -m workers.probe /livez`: asks the worker of this container, for a health check that has no HTTP client."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from typing import Final

TIMEOUT: Final = 4.0


def main() -> int:
    """Return 0 if the worker answers that it is well, 1 if not."""
    path = sys.argv[1] if len(sys.argv) > 1 else '/livez'
    address = os.environ.get('HARNESS_HTTP_ADDRESS', ':8080')
    host, _, port = address.rpartition(':')
    # It listens on all addresses, or on the one that is given.
    url = f'http://{host if host not in ("", "0.0.0.0", "[::]") else "127.0.0.1"}:{port}{path}'
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            print(answer.read().decode())
    except urllib.error.HTTPError as error:
        print(error.read().decode())
        return 1
    except OSError as error:
        print(f'{url}: {error}')
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
