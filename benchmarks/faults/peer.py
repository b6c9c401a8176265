"""`python -m benchmarks.faults.peer`: a campaign against the peer, in the peer's environment.

Workers import this module too, and both packages in one process register the same kind of event: so it imports nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys


def main() -> None:
    from benchmarks.driver import leave
    from benchmarks.faults.peer_campaign import campaign

    print(json.dumps(asyncio.run(campaign(**json.loads(sys.argv[1])))))
    leave()


if __name__ == '__main__':
    main()
