"""The differences between JSON Schemas, which of them do no harm, and what to tell about the
others."""

COMPATIBLE = frozenset(
    [
        "ID_CHANGED",
        "DESCRIPTION_CHANGED",
        "TITLE_CHANGED",
        "DEFAULT_CHANGED",
        "SCHEMA_REMOVED",
        "TYPE_EXTENDED",
        "MAX_LENGTH_INCREASED",
        "MAX_LENGTH_REMOVED",
        "MIN_LENGTH_DECREASED",
        "MIN_LENGTH_REMOVED",
        "PATTERN_REMOVED",
        "MAXIMUM_INCREASED",
        "MAXIMUM_REMOVED",
        "MINIMUM_DECREASED",
        "MINIMUM_REMOVED",
        "EXCLUSIVE_MAXIMUM_INCREASED",
        "EXCLUSIVE_MAXIMUM_REMOVED",
        "EXCLUSIVE_MINIMUM_DECREASED",
        "EXCLUSIVE_MINIMUM_REMOVED",
        "MULTIPLE_OF_REDUCED",
        "MULTIPLE_OF_REMOVED",
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
        "REQUIRED_ATTRIBUTE_REMOVED",
        "DEPENDENCY_ARRAY_NARROWED",
        "DEPENDENCY_ARRAY_REMOVED",
        "DEPENDENCY_SCHEMA_REMOVED",
        "MAX_PROPERTIES_INCREASED",
        "MAX_PROPERTIES_REMOVED",
        "MIN_PROPERTIES_DECREASED",
        "MIN_PROPERTIES_REMOVED",
        "ADDITIONAL_PROPERTIES_ADDED",
        "ADDITIONAL_PROPERTIES_EXTENDED",
        "UNEVALUATED_PROPERTIES_ADDED",
        "UNEVALUATED_PROPERTIES_EXTENDED",
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "MAX_ITEMS_INCREASED",
        "MAX_ITEMS_REMOVED",
        "MIN_ITEMS_DECREASED",
        "MIN_ITEMS_REMOVED",
        "MAX_CONTAINS_INCREASED",
        "MAX_CONTAINS_REMOVED",
        "MIN_CONTAINS_DECREASED",
        "MIN_CONTAINS_REMOVED",
        "UNIQUE_ITEMS_REMOVED",
        "ADDITIONAL_ITEMS_ADDED",
        "ADDITIONAL_ITEMS_EXTENDED",
        "UNEVALUATED_ITEMS_ADDED",
        "UNEVALUATED_ITEMS_EXTENDED",
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ENUM_ARRAY_EXTENDED",
        "COMBINED_TYPE_EXTENDED",
        "PRODUCT_TYPE_NARROWED",
        "SUM_TYPE_EXTENDED",
        "NOT_TYPE_NARROWED",
    ]
)
# CompatibilityPolicy=LENIENT: objects may change as if only the properties named mattered.
LENIENT = COMPATIBLE | frozenset(
    [
        "ADDITIONAL_PROPERTIES_NARROWED",
        "ADDITIONAL_PROPERTIES_REMOVED",
        "UNEVALUATED_PROPERTIES_NARROWED",
        "UNEVALUATED_PROPERTIES_REMOVED",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ]
)

_BY_DIFFERENCE = {
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": (
        "the %s schema requires the property at '{path}', which the %s schema does not have"
    ),
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "the %s schema is closed and lacks what is at '{path}' in the %s schema"
    ),
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "the %s schema is closed and lacks what is at '{path}' in the %s schema"
    ),
    "TYPE_NARROWED": "the type at '{path}' allows less in the %s schema than in the %s schema",
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": (
        "the schemas combined at '{path}' in the %s schema do not match those in the %s schema"
    ),
    "SCHEMA_ADDED": "the %s schema restricts what is at '{path}', the %s schema does not",
}
_BY_ENDING = {
    "_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "what is at '{path}' in only one of the %s and the %s schema does not fit the schema of "
        "additional content"
    ),
    "_ADDED_TO_OPEN_CONTENT_MODEL": (
        "the %s schema restricts what is at '{path}'; the %s schema is open there and allowed anything"
    ),
    "_INCREASED": "the value at '{path}' in the %s schema is more than in the %s schema",
    "_EXPANDED": "the value at '{path}' in the %s schema is more than in the %s schema",
    "_DECREASED": "the value at '{path}' in the %s schema is less than in the %s schema",
    "_NARROWED": "what is at '{path}' allows less in the %s schema than in the %s schema",
    "_EXTENDED": "what is at '{path}' asks for more in the %s schema than in the %s schema",
    "_CHANGED": "what is at '{path}' differs between the %s schema and the %s schema",
    "_ADDED": "the %s schema has a restriction at '{path}' that the %s schema does not have",
    "_REMOVED": "the %s schema no longer allows at '{path}' what the %s schema allowed",
}


def describe(difference: str, path: str) -> str:
    text = _BY_DIFFERENCE.get(difference)
    if text is None:
        text = next((message for ending, message in _BY_ENDING.items() if difference.endswith(ending)), "")
    return f'{{errorType:"{difference}", description:"{text.format(path=path.replace("%", "%%"))}"}}'
