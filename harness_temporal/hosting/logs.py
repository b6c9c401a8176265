"""Where the process's log goes, and in what form."""

from __future__ import annotations

import logging
from typing import Literal, TextIO

from harness_temporal.observability import JsonFormatter, TextFormatter
from harness_temporal.temporal import RunFields


def configure_logging(level: str, form: Literal['auto', 'json', 'text'], stream: TextIO | None = None) -> None:
    """Log to standard error: for people on a terminal, one JSON object per line elsewhere, or as `form` says."""
    handler = logging.StreamHandler(stream)
    as_text = handler.stream.isatty() if form == 'auto' else form == 'text'
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    handler.addFilter(RunFields())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
