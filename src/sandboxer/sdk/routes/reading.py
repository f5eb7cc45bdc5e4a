"""How answers are read into the words of `wire/`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from sandboxer.sdk.calls import Answer
from sandboxer.sdk.errors import BrokenAnswer

M = TypeVar("M", bound=BaseModel)


def model(kind: type[M]) -> Callable[[Answer], M]:
    def read(answer: Answer) -> M:
        return parse(kind, answer.content)

    return read


def parse(kind: type[M], text: bytes | str) -> M:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise BrokenAnswer(f"The answer is no {kind.__name__}: {error.errors()[0]['msg']}") from None


def nothing(answer: Answer) -> None:
    return None


def content(answer: Answer) -> bytes:
    return answer.content
