"""Refusals of creation that clients branch on."""

from carteiro.domain.errors import FieldError, InvalidRequest


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
