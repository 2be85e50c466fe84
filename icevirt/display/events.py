"""Format log records as lines of JSON, for systems that collect them."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any


class JsonFormatter(logging.Formatter):
    """A logging formatter that writes each record as one line of JSON.

    Time, level and logger, then the ``event`` and fields of icevirt's records; others have their
    ``message``. A traceback is one field.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        event, fields = getattr(record, "event", None), getattr(record, "fields", None)
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if isinstance(event, str) and isinstance(fields, dict):
            line |= {"event": event, **fields}
        else:
            line |= {"event": "message", "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
