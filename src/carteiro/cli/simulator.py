"""`carteiro simulator`: a stand-in for Infobip and Meta."""

import msgspec
import rich_click as click

from carteiro.cli.loop import run_loop
from carteiro.providers.simulator.app import serve
from carteiro.providers.simulator.options import Options

_DEFAULTS = Options()


@click.command(context_settings={"show_default": True})
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", default=9100, type=click.IntRange(1, 65535), help="Port to listen on.")
@click.option("--latency-ms", default=_DEFAULTS.latency_ms, help="From the arrival of a send to its answer.")
@click.option("--jitter-ms", default=_DEFAULTS.jitter_ms, help="Added to the latency, uniform from 0 to this.")
@click.option("--dedupe/--no-dedupe", default=_DEFAULTS.dedupe, help="Refuse a messageId that was accepted before.")
@click.option("--api-key", default=None, help="Refuse other keys with 401. Without it any key will do.")
@click.option("--magic/--no-magic", default=_DEFAULTS.magic, help="Let a recipient's last digits choose a fault.")
@click.option("--seed", default=_DEFAULTS.seed, help="Of everything random.")
@click.option("--receipts/--no-receipts", default=_DEFAULTS.receipts, help="Post reports to each notifyUrl.")
@click.option("--receipt-delay-ms", default=_DEFAULTS.receipt_delay_ms, help="From acceptance to delivery.")
@click.option("--receipt-jitter-ms", default=_DEFAULTS.receipt_jitter_ms, help="Added to that delay.")
@click.option("--seen-ratio", default=_DEFAULTS.seen_ratio, help="Part of the delivered messages that are seen.")
@click.option("--seen-delay-ms", default=_DEFAULTS.seen_delay_ms, help="From delivery to being seen.")
@click.option("--results-per-post", default=_DEFAULTS.results_per_post, help="Reports in one post at most.")
@click.option("--receipt-connections", default=_DEFAULTS.receipt_connections, help="Posts of reports at once.")
@click.option("--receipt-attempts", default=_DEFAULTS.receipt_attempts, help="Tries of one post.")
@click.option("--receipt-retry-ms", default=_DEFAULTS.receipt_retry_ms, help="Pause before the second; it doubles.")
@click.option("--meta-webhook-url", default=None, help="Where what Meta tells is posted. Without it nowhere.")
@click.option("--meta-app-secret", default=_DEFAULTS.meta_app_secret, help="What it is signed with.")
@click.option("--meta-opaque/--no-meta-opaque", default=_DEFAULTS.meta_opaque, help="Statuses carry our own id.")
@click.option("--log-lag-ms", default=_DEFAULTS.log_lag_ms, help="How long a message is missing in the log.")
@click.option("--witness-dsn", default=None, help="Record what Carteiro's database says when a message arrives.")
def simulator(host: str, port: int, witness_dsn: str | None, **options: object) -> None:
    """Speak Infobip's and Meta's wire format, with faults on demand (docs/simulator.md)."""
    try:
        chosen = msgspec.convert(options, Options)
    except msgspec.ValidationError as error:
        raise click.UsageError(str(error)) from error
    run_loop(serve(chosen, host, port, witness_dsn))
