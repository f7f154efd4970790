"""The moves that there may be, written down from the design by hand: the engine's own table is what is judged."""

MOVES_NOTHING = ("created", "rescheduled")

BATCH = {
    ("draft", "pending_moderation"),
    ("draft", "pending"),
    ("pending_moderation", "pending"),
    ("pending_moderation", "cancelled"),
    ("pending", "processing"),
    ("pending", "cancelled"),
    ("pending", "error"),
    ("processing", "paused"),
    ("processing", "completed"),
    ("processing", "error"),
    ("processing", "cancelled"),
    ("paused", "processing"),
    ("paused", "cancelled"),
    ("paused", "completed"),
}

_EVIDENCE = ("sent", "delivered", "seen", "failed")

MESSAGE = {
    ("pending", "pending_send"),
    ("pending", "unsent"),
    *(("pending", state) for state in _EVIDENCE),
    ("pending_send", "pending"),
    ("pending_send", "unknown"),
    ("pending_send", "unsent"),
    *(("pending_send", state) for state in _EVIDENCE),
    ("unknown", "pending"),
    ("unknown", "unsent"),
    *(("unknown", state) for state in _EVIDENCE),
    ("sent", "delivered"),
    ("sent", "seen"),
    ("sent", "failed"),
    ("delivered", "seen"),
    ("delivered", "failed"),
    ("failed", "delivered"),
    ("failed", "seen"),
    ("failed", "sent"),
}

NEVER_AGAIN = MESSAGE - {("unknown", "pending"), ("unknown", "unsent")}
"""Of what is not sent again when nobody knows whether it left, whatever a log says: follow-ups. Of messages by Meta,
which keeps no log, as well.
"""
