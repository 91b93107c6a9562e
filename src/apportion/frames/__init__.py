"""Tables of mixed columns, extra [cli]: reading a file, finding the target, and making numbers of the columns.

    table = read_table("patients.csv")                      # CSV, Parquet or svmlight
    X, y = table.split("diagnosis")
    columns = describe_columns(X)                           # what each column is taken for, and what becomes of it
    prepare = preprocessor(columns)                         # a ColumnTransformer, for a pipeline
    X, said = align(X, prepare)                             # the columns it needs, checked; new data too

    numbers     missing ones become the median, and a column of 0 and 1 says where they were
    categories  one column of 0 and 1 a value; rare values share one, unseen ones go with them
    dates       days since 1970
    the rest    (free text, IDs, constants) is left out, and said

What is wrong with a file is one `ValueError` or `OSError` of one line that says what to do.
"""

from .columns import Column, align, describe_columns, preprocessor, row_digests
from .costs import parse_costs, read_cost_matrix, written_costs
from .reading import SKLEARN, Table, known_labels, read_table, sklearn_table

__all__ = [
    "SKLEARN",
    "Column",
    "Table",
    "align",
    "describe_columns",
    "known_labels",
    "parse_costs",
    "preprocessor",
    "read_cost_matrix",
    "read_table",
    "row_digests",
    "sklearn_table",
    "written_costs",
]
