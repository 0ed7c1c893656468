"""What can go wrong, and the exit code that it ends with.

DataPrepError
+-- UsageError      (2) an option that cannot be
+-- SourceError     (2) the input is not what it should be
+-- OutputError     (1) the output folder is busy, foreign, full or not writable
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
    """An output folder that cannot be written, or must not be."""


class DamageError(DataPrepError):
    """Records or a manifest that do not hold what they should."""


class DownloadError(DataPrepError):
    """An archive that no attempt could fetch whole and right."""
