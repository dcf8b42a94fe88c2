"""What can go wrong, each with one sentence that says what to do. No message ever holds a label."""


class LabelDPError(ValueError):
    """Something in the request cannot be done; the message says what to change.

    Args:
        message: One sentence with the problem and the remedy. It names no command-line option.
        parameter: The parameter that the remedy sets, `excluded_columns` for example. The command line appends the
            option that sets it.
    """

    def __init__(self, message: str = "", *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class InputError(LabelDPError):
    """A value, a file or a column is not what it must be."""


class LedgerError(LabelDPError):
    """The ledger is locked, damaged, or belongs to another data set."""


class BudgetExceeded(LabelDPError):
    """The release would cost more than the budget has left."""


class MissingExtra(LabelDPError, ModuleNotFoundError):
    """A package that only an extra of labeldp installs is missing; the message names the extra."""

    def __init__(self, feature: str, package: str = "torch", extra: str = "learn") -> None:
        """Say what needs the package: `what` begins the sentence, and `name` is the package, as for other imports."""
        super().__init__(f"{feature} needs {package}, which is not installed: pip install 'labeldp[{extra}]'.")
        self.name = package


class PrivacyWarning(UserWarning):
    """Nothing failed, but a promise is weaker than it may seem."""


class ReusedReleaseWarning(UserWarning):
    """A stored release answered a request: labels that changed since it was drawn are not in it."""
