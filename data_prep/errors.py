"""What can go wrong, and the exit code that it ends with.

DataPrepError
+-- UsageError      (2) an option has an invalid value
+-- SourceError     (2) the input is not what it should be
+-- OutputError     (1) the output is a file, in use, or holds another program's records
+-- DamageError     (1) records that fail their checks
+-- DownloadError   (1) an archive that could not be fetched whole
"""


class DataPrepError(Exception):
    """One clear line for the user: the value, the rule and the way out."""

    exit_code = 1


class UsageError(DataPrepError):
    """An option whose value breaks a rule, alone or with this source."""

    exit_code = 2


class SourceError(DataPrepError):
    """Input that is truncated, oversized, mislabelled, wrong-shaped, empty or something else."""

    exit_code = 2


class OutputError(DataPrepError):
    """An output folder that must not be written to."""


class DamageError(DataPrepError):
    """Records or a manifest that do not hold what they should."""


class DownloadError(DataPrepError):
    """An archive that no attempt could fetch whole and right."""
