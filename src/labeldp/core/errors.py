"""Errors and warnings. Each message says in one sentence what to change; no message holds a label."""


class LabelDPError(ValueError):
    """A request cannot be fulfilled; the message says what to change.

    Args:
        message: One sentence with the problem and the remedy. It names no command-line option.
        parameter: The parameter that the remedy sets, `excluded_columns` for example. The command line appends the
            option that sets it.
    """

    def __init__(self, message: str = "", *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class InputError(LabelDPError):
    """A value, a file or a column is invalid."""


class LedgerError(LabelDPError):
    """The ledger is locked, damaged, or belongs to another data set."""


class BudgetExceeded(LabelDPError):
    """The release would cost more than the budget has left."""


class MissingExtra(LabelDPError, ModuleNotFoundError):
    """A package that only an extra of labeldp installs is missing; the message names the extra."""

    def __init__(self, feature: str, package: str = "torch", extra: str = "learn") -> None:
        """Create the error.

        Args:
            feature: What needs the package; it begins the sentence.
            package: The missing package. The attribute `name` holds it, as for other import errors.
            extra: The extra of labeldp that installs the package.
        """
        super().__init__(f"{feature} needs {package}, which is not installed: pip install 'labeldp[{extra}]'.")
        self.name = package


class PrivacyWarning(UserWarning):
    """Nothing failed, but a guarantee is weaker than it may seem."""


class ReusedReleaseWarning(UserWarning):
    """The vault returned a stored release, which does not reflect labels that changed since it was drawn."""
