"""Writes event traces of LMCache 0.5.6 with its own recorder, a file for each server: run by LMCache's Python.

    events_trace.py FOLDER < LINES     each line: {"t": seconds, "kind": "batch" or "lifecycle", "args": {...}}
"""

import json
import pathlib
import sys

from lmcache.v1.mp_coordinator.api import CACHE_EVENT_SCHEMA_VERSION
from lmcache.v1.mp_coordinator.cache_events import EVENTS_TRACE_BATCH, EVENTS_TRACE_LIFECYCLE
from lmcache.v1.mp_observability.trace.recorder import EventsTraceRecorder

folder, recorders = pathlib.Path(sys.argv[1]), {}
for line in sys.stdin:
    row = json.loads(line)
    name = row["args"]["instance_id"]
    if name not in recorders:
        meta = {"cache_event_schema_version": CACHE_EVENT_SCHEMA_VERSION}
        recorders[name] = EventsTraceRecorder(str(folder / f"{name}.lct"), meta)
    kind = EVENTS_TRACE_BATCH if row["kind"] == "batch" else EVENTS_TRACE_LIFECYCLE
    recorders[name].write_record(kind, row["args"], t_wall=row["t"], t_mono=row["t"])
for recorder in recorders.values():
    recorder.close()
    assert recorder.dropped_count == 0, recorder.dropped_count
