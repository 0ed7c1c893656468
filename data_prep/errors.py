"""The errors of this package, each with its exit code in parentheses.

DataPrepError
+-- UsageError      (2) an option has an invalid value
+-- SourceError     (2) the input is not what it should be
+-- OutputError     (1) the output folder must not be written to, or is being written to
+-- DamageError     (1) records or a manifest fail their checks
+-- DownloadError   (1) an archive could not be fetched
"""


class DataPrepError(Exception):
    """An error whose message is one line for the user: the value, the rule and the way out."""

    exit_code = 1


class UsageError(DataPrepError):
    """An option has a value that is invalid, either always or for this source."""

    exit_code = 2


class SourceError(DataPrepError):
    """The input is truncated, too large, mislabelled, empty, or none of the known kinds."""

    exit_code = 2


class OutputError(DataPrepError):
    """The output is a file, is in use, or holds records that another program wrote."""


class DamageError(DataPrepError):
    """Records or a manifest are damaged, or contradict each other."""


class DownloadError(DataPrepError):
    """An archive could not be fetched, or is not the published one."""
