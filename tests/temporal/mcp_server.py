"""A real MCP server over stdio, with one tool whose effect the test counts from outside.

Run as `python -m tests.temporal.mcp_server FOLDER TOOL`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

from tests.temporal.effects import note


def serve(folder: Path, tool: str) -> None:
    server = MCPServer('desk')

    def run() -> str:
        note(folder, tool)
        return f'{tool} by MCP'

    server.add_tool(run, name=tool)
    server.run('stdio')


if __name__ == '__main__':
    serve(Path(sys.argv[1]), sys.argv[2])
