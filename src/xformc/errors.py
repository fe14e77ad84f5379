"""The one kind of failure that a user can cause: what is wrong, where, and what to do about it."""


class UserError(Exception):
    """A mistake in what xformc was given. The command line prints it without a traceback and exits with code 2."""

    def __init__(self, message: str, *, hint: str | None = None, place: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.place = place

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        advice = f"\nhint: {self.hint}" if self.hint else ""
        return f"{where}{self.message}{advice}"
