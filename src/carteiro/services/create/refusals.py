"""Refusals of creation that clients branch on."""

from carteiro.domain.errors import Conflict, FieldError, InvalidRequest


class UnknownTemplate(InvalidRequest):
    code = "template-unknown"
    title = "There is no such template"

    def __init__(self, name: str, language: str, pointer: str = "/template") -> None:
        detail = f"There is no template {name} in {language}."
        super().__init__(detail, errors=[FieldError(pointer, self.code, detail)])


class TemplateNotApproved(InvalidRequest):
    code = "template-not-approved"
    title = "The template is approved nowhere that this account sends from"

    def __init__(self, name: str, language: str, pointer: str = "/template") -> None:
        detail = f"No business manager of this account has an approved copy of {name} in {language} that equals it."
        super().__init__(detail, errors=[FieldError(pointer, self.code, detail)])


class NotSettled(Conflict):
    code = "not-settled"
    title = "The outcome of some of its messages is still open"

    def __init__(self, status: str) -> None:
        detail = f"The batch is {status} and not settled yet: wait until settled_at is set."
        super().__init__(detail, extra={"state": status})


class NothingToRetry(Conflict):
    code = "nothing-to-retry"
    title = "It has no failed message that can be sent again"

    def __init__(self) -> None:
        super().__init__("No message of the batch failed, but for those whose outcome is unknown or that were erased.")


class TemplateNotUsable(Conflict):
    code = "template-not-usable"
    title = "What the batch was created with can be sent from nowhere now"

    def __init__(self, name: str, language: str) -> None:
        super().__init__(
            f"No business manager of this account has an approved copy of {name} in {language} that equals what the "
            "batch was created with. Post a new batch."
        )
