"""The application: routes, authentication, problems, the OpenAPI document."""

from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.middleware import DefineMiddleware
from litestar.types import ASGIApp

from carteiro.api.access import Access
from carteiro.api.authentication import KeyAuthentication, require_scope
from carteiro.api.batches import BatchController
from carteiro.api.broadcasts import BroadcastController
from carteiro.api.context import Context
from carteiro.api.control import ControlController
from carteiro.api.credits import SpendingController
from carteiro.api.documentation import DocumentationController
from carteiro.api.group_links import GroupLinkController, ReminderController
from carteiro.api.health import HealthController
from carteiro.api.problems import HANDLERS
from carteiro.api.suppression import SuppressionController
from carteiro.api.webhooks import WebhookController
from carteiro.services.broadcast import Directory
from carteiro.services.database import Pool, required_revision
from carteiro.services.group_links.reminder import Reminders, no_provider
from carteiro.services.intake import Intake
from carteiro.settings import Settings

BODY_MAX = 64 * 1024 * 1024
"""Bytes: a hundred thousand contacts take about a tenth of it."""


def create_app(settings: Settings, pool: Pool, directory: Directory, reminders: Reminders | None = None) -> ASGIApp:
    """The ASGI application on an open pool and a directory. Opening and closing them is the caller's, and so it is to
    wait for the reminders under way. Without `reminders` it sends none.
    """
    reminders = reminders or Reminders(pool, settings, "api", no_provider)
    v1 = Router(
        "/api/v1",
        route_handlers=[
            BatchController,
            BroadcastController,
            ControlController,
            GroupLinkController,
            ReminderController,
            SpendingController,
            SuppressionController,
        ],
        middleware=[DefineMiddleware(KeyAuthentication)],
        guards=[require_scope],
    )
    app = Litestar(
        route_handlers=[v1, HealthController, WebhookController, DocumentationController],
        exception_handlers=HANDLERS,
        request_max_body_size=BODY_MAX,
        state=State({"context": Context(settings, pool, directory, reminders, Intake(pool), required_revision())}),
        openapi_config=None,
        logging_config=None,
    )
    return Access(app)
