"""A stand-in for Infobip and Meta: a separate process that speaks their wire formats, with faults on demand.

Anybody can ask for a fault by the last four digits of a recipient (`magic.py` holds the table, docs/simulator.md and
`GET /_sim/magic` show it), or by `POST /_sim/faults`. Every message that arrives is on record (`GET /_sim/calls`).

    options   what can be set        plan, faults, magic   what goes wrong with which call
    desk      what becomes of a message, at whichever provider
    wire      Infobip's format       sending, reading      its endpoints
    wire_meta Meta's format          graph                 its endpoints
    ledger    what arrived           receipts              reports of delivery and of being seen
    admin     /_sim                  sink                  a place for callbacks
"""
