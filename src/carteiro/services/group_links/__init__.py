"""The door of group links: one template to one person, delayed and retried, or sent at once as a reminder.

Both are batches of one with a priority above bulk: claimed, sent and recorded like any other message.
"""
