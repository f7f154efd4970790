"""Meta's WhatsApp Cloud API: codec, client and code table."""
