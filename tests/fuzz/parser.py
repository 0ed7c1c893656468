"""What a parser under test is: a row of the table in `tests/fuzz/table.py`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from tests.fuzz import mutate


@dataclass(frozen=True)
class Parser:
    """A function of the program that reads what others have written.

    Attributes:
      name: name of the row, and of its folder in tests/fuzz/corpus/.
      examples: a function that returns valid inputs, from which others are made.
      call: a function of an input and an empty folder; it may write files there, and raises an
        AssertionError if the program's answer breaks a rule.
      errors: the errors by which the program refuses an input, each in one line of text.
      form: how inputs are changed: `mutate.of_bytes`, `of_text`, `of_json` or `of_words`.
      repair: a function that makes checksums of an input right again, so that the code behind them
        is reached; None if there are none.
      most_bytes: the memory that Python objects may take at the same time.
      most_secs: the processor time that an input may take.
      needs_tensorflow: whether `call` loads TensorFlow.
    """

    name: str
    examples: Callable[[], list[bytes]]
    call: Callable[[bytes, Path], Any]
    errors: tuple[type[BaseException], ...] = ()
    form: mutate.Form = mutate.of_bytes
    repair: Optional[Callable[[bytes], bytes]] = None
    most_bytes: int = 64 << 20
    most_secs: float = 10.0
    needs_tensorflow: bool = False

    def __str__(self) -> str:
        return self.name
