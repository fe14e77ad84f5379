"""The error for mistakes in a user's input: what is wrong, where, and how to fix it."""


class UserError(Exception):
    """A mistake in the input. The command line prints it without a traceback and exits with code 2."""

    def __init__(self, message: str, *, hint: str | None = None, place: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.place = place

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        advice = f"\nhint: {self.hint}" if self.hint else ""
        return f"{where}{self.message}{advice}"
