"""Copies of tables on this machine's disk, to ask questions of.

with TopicView.of_table("users", folder, key=STRING, value=JSON, client=client) as users:
    users.follow()
    with users.snapshot() as rows:
        rows.get("alice"), rows.offsets
"""

from millstream.streams.views.snapshot import Snapshot
from millstream.streams.views.topic_view import TopicView, ViewBusy

__all__ = ["Snapshot", "TopicView", "ViewBusy"]
