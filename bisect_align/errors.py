"""What can go wrong for a user: one class a kind, one sentence an error."""

from __future__ import annotations


class BisectAlignError(Exception):
    """A mistake or a trouble that the user can act on: *what* happened, *where*, and *what to try*.

    The command line prints it as one line and exits with 2; a traceback never reaches a user.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what, where, hint)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} ({self.hint})" if self.hint else text


def one_line(text: object) -> str:
    """A message of any shape, such as that of a foreign library, as one line."""
    return " ".join(str(text).split())


class ModelError(BisectAlignError):
    """The model cannot be read, is not valid, or needs what is not there."""


class DumpError(BisectAlignError):
    """A dump folder or one of its files cannot be read or trusted."""


class InputsError(BisectAlignError):
    """The inputs are missing, misnamed, or of another shape or type than the model's."""


class EngineError(BisectAlignError):
    """ONNX Runtime refuses the model or one of its operators."""


class MatchError(BisectAlignError):
    """No entry of the dump belongs to the model, or a map names what does not exist."""


class OutputError(BisectAlignError):
    """The result cannot be written where it was asked for."""


class UsageError(BisectAlignError):
    """Options that do not go together, or a value that is none."""
