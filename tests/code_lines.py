"""How many lines of code a file, a class and a function have: neither blank, nor comment, nor docstring."""

import ast
import io
import tokenize
from pathlib import Path

BLANK = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def code_lines(source: str) -> set[int]:
    """The numbers of the lines of code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in BLANK:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def sizes(root: Path) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Path -> code lines of each file; `path:name` -> those of each class and of each function."""
    files, classes, functions = {}, {}, {}
    for path in sorted(root.rglob("*.py")):
        source, name = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
        lines = code_lines(source)
        files[name] = len(lines)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                into = classes if isinstance(node, ast.ClassDef) else functions
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                into[f"{name}:{node.name}"] = len(lines & set(range(first, (node.end_lineno or first) + 1)))
    return files, classes, functions
