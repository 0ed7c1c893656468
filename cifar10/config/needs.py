"""Which settings have no effect beside others. Standard library only."""

import operator
from collections.abc import Mapping
from typing import Any, Optional

from cifar10 import models
from cifar10.config.fields import FIELDS
from cifar10.settings import flag_name, flag_of


def why_pointless(setting: str, value: Any, others: Mapping[str, Any]) -> Optional[str]:
    """Says why a setting has no effect beside others; None if it has one, or is false.

    Args:
      setting: the setting's name; its field says what it needs.
      value: its value.
      others: values of those other settings that are known, by name.
    """
    if value is False:
        return None
    name, instead = flag_name(setting), flag_of(FIELDS[setting]).instead
    for other, fit in _needs(setting).items():
        if other not in others:
            continue
        flag, got = flag_name(other), others[other]
        if fit is True and not got:
            return f"{name} has no effect: {flag} is {'false' if got is False else 0}; {instead}"
        if fit is not True and got not in fit:
            return f"{name} is for {flag} {' or '.join(fit)}, got {flag} {got}; {instead}"
    return None


def _needs(setting: str) -> Mapping[str, Any]:
    """Returns `Flag.needs` of a setting, with the names of the models."""
    needs, owners = flag_of(FIELDS[setting]).needs, models.owners()
    if "model" in needs:
        return {**needs, "model": models.names_where(operator.attrgetter(needs["model"]))}
    return {"model": owners[setting], **needs} if setting in owners else needs
