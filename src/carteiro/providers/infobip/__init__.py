"""Infobip's WhatsApp channel: codec, client and code table."""
