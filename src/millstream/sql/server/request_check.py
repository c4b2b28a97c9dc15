"""A request of several statements is checked as a whole before the first of them is carried out.

Otherwise a mistake in the last statement leaves those before it behind, and the corrected request fails
at its first. What a statement would change is only pretended, so the check ends where that does not tell what
the next one will find: behind a statement that acts on queries, and behind a source whose schema a later
statement may ask the registry for. What is wrong there is said when its turn comes; then the answer has what
was done until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.sql import statements
from millstream.sql.catalog import Catalog
from millstream.sql.engine import apply
from millstream.sql.environment import Environment
from millstream.sql.errors import sql_error
from millstream.sql.lexer import tokens

MAX_TOKENS = 20_000  # of a statement: 1,000 columns with a conversion and a name each have 10,000
_CHANGES = (
    statements.CreateSource,
    statements.CreateAs,
    statements.InsertInto,
    statements.DropSource,
    statements.AlterSource,
    statements.CreateType,
    statements.DropType,
)
_SESSION = (
    statements.InsertValues,
    statements.Define,
    statements.Undefine,
    statements.Show,
    statements.Describe,
)
# Numbers of commands that no topic reaches, so that no query of the check has the id of a real one.
_FIRST_NUMBER = 10**15


def check_length(statement: statements.Statement) -> None:
    """A statement is checked and compiled in a thread, but Python's compiler keeps the interpreter to itself,
    and with it the server. What stands in quotes counts as one, however long it is."""
    if isinstance(statement, statements.Batch) or len(statement.text) <= MAX_TOKENS:
        return
    count = len(tokens(statement.text)[0])
    if count > MAX_TOKENS:
        raise sql_error("too long", count=count, limit=MAX_TOKENS)


def check_together(
    parsed: Sequence[statements.Statement],
    catalog: Catalog,
    environment_of: Callable[[dict[str, Any]], Environment],
    session: dict[str, Any],
) -> None:
    """Raises what the first wrong statement will be refused with."""
    settings = dict(session)
    for number, statement in enumerate(parsed, _FIRST_NUMBER):
        if isinstance(statement, statements.SetProperty):
            settings[statement.name] = statement.value
        elif isinstance(statement, _CHANGES):
            outcome = apply(statement, catalog, environment_of(settings), number=number)
            catalog = outcome.catalog
            source = outcome.source
            if source is not None and (source.value_format.traits.infers or source.key_format.traits.infers):
                return
        elif not isinstance(statement, _SESSION):
            return
