"""Dispatch: claim a slice of one batch, send it at its slots, record what came of it, and take the next batch in
turn.
"""
