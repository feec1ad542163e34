"""The forms in which data sets write test cases, all to ours.

- LiveCodeBench: a list of `{input, output, testtype}`, as JSON or as base64 of zlib of a pickled JSON text. Only a text
  is ever unpickled. A call's input is one JSON value per line.
- verl's and Skywork-OR1's: `{inputs, outputs, fn_name?}`. Of a call, an input is text as LiveCodeBench's, or as in APPS
  and TACO the list of arguments; the outputs are then lists of one each, or plain values.
- Skywork-OR1's assertions: `{assert_case: [...]}` and `{import_prefix, test_code, entry_point}`. As code they would
  show the program what it should return, so `assert f(1) == 2` is read, never run, as the call and its result.

Limits: assertions that compare anything but one call with one literal, or whose arguments JSON can't carry as they are
(tuples, keys that are numbers), make the row be skipped, with the reason. Where every output of lists of arguments is a
list of one value, that value is wanted: a function that always returns such a list would be judged wrong.
"""

from __future__ import annotations

import ast
import base64
import io
import pickle
import zlib
from collections.abc import Iterator, Mapping

from cleaner_rl.tasks.datasets.rows import SkippedRowError
from cleaner_rl.tasks.grading import Case, Cases, call_case
from cleaner_rl.tools import read_json


def read_cases(*parts: object, entry: str | None = None) -> Cases:
    """All test cases of one problem, in any of the forms; `SkippedRowError` if they are in none, or none are there."""
    found = [_read(_decoded(part), entry) for part in parts]
    cases = tuple(case for each in found for case in each.cases)
    if not cases:
        raise SkippedRowError("there are no test cases")
    return Cases(cases, found[0].entry)


def looks_like_cases(value: object) -> bool:
    """Whether a reference holds test cases rather than an answer."""
    try:
        decoded = read_json(value) if isinstance(value, str) else value
    except ValueError:
        return False
    return isinstance(decoded, Mapping) and not {"inputs", "assert_case", "test_code"}.isdisjoint(decoded)


def _read(value: object, entry: str | None) -> Cases:
    if isinstance(value, list):
        if not all(isinstance(each, Mapping) and {"input", "output"} <= each.keys() for each in value):
            raise SkippedRowError("a test case has no input or no output")
        value = {"inputs": [each["input"] for each in value], "outputs": [each["output"] for each in value]}
    if not isinstance(value, Mapping):
        raise SkippedRowError("the test cases are neither a list nor an object")
    if "inputs" in value:
        return _inputs_and_outputs(value, entry)
    if "assert_case" in value:
        asserted = value["assert_case"]
        return _assertions("\n".join(map(str, asserted)) if isinstance(asserted, list) else str(asserted), None)
    if "test_code" in value:
        if not value.get("entry_point"):
            raise SkippedRowError("the test code has no entry point")
        return _assertions(str(value["test_code"]), str(value["entry_point"]))
    raise SkippedRowError(f"test cases with the keys {sorted(value)} have no known form")


def _decoded(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return _decoded(read_json(value)) if value.strip() else []
    except ValueError:
        pass
    try:
        reader = zlib.decompressobj()
        packed = reader.decompress(base64.b64decode(value, validate=True), UNPACKED_BYTES)
        text = _TextOnly(io.BytesIO(packed)).load()
        if reader.eof and isinstance(text, str):
            return read_json(text)
        error = None
    except Exception as raised:  # a pickle that isn't one can raise almost anything
        error = raised
    raise SkippedRowError("the test cases are neither JSON nor a packed JSON text") from error


UNPACKED_BYTES = 1 << 29
"""The packed test cases of one problem may expand to at most this many bytes."""


class _TextOnly(pickle.Unpickler):
    """Unpickles built-in values; a pickle that names a class or function is refused before it can do anything."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"the pickle wants {module}.{name}")


def _inputs_and_outputs(value: Mapping[str, object], entry: str | None) -> Cases:
    inputs, outputs = value["inputs"], value.get("outputs")
    entry = entry or (str(value["fn_name"]) if value.get("fn_name") else None)
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        raise SkippedRowError("inputs and outputs are not two lists of the same length")
    if entry is None:
        return Cases(tuple(map(Case, map(_lines, inputs), map(_lines, outputs))))
    try:
        return Cases(tuple(_calls(inputs, outputs)), entry)
    except (ValueError, TypeError) as error:
        raise SkippedRowError("a call's arguments or result are not JSON") from error


def _calls(inputs: list[object], outputs: list[object]) -> Iterator[Case]:
    alone = [wanted[0] for wanted in outputs if isinstance(wanted, list) and len(wanted) == 1]
    if len(alone) == len(outputs) and all(isinstance(given, list) for given in inputs):
        outputs = alone
    for given, wanted in zip(inputs, outputs, strict=True):
        if isinstance(given, list):
            yield call_case(given, {}, wanted)
        else:
            yield call_case([read_json(line) for line in str(given).split("\n")], {}, read_json(str(wanted)))


def _lines(value: object) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _assertions(code: str, entry: str | None) -> Cases:
    """`assert name(args) == literal` as calls; with an `entry`, `name` is the parameter that stands for it."""
    try:
        asserts = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Assert)]
        pairs = [_call_and_literal(node.test) for node in asserts]
        names = {call.func.id for call, _ in pairs if isinstance(call.func, ast.Name)}
        if len(names) > 1:
            raise SkippedRowError("the assertions call more than one function")
        calls = [(_arguments(call), ast.literal_eval(wanted)) for call, wanted in pairs]
    except (SyntaxError, ValueError, TypeError, RecursionError) as error:
        raise SkippedRowError("an assertion compares more than a call with a literal") from error
    try:
        cases = tuple(call_case(args, kwargs, wanted) for (args, kwargs), wanted in calls)
    except (ValueError, TypeError) as error:
        raise SkippedRowError(f"an assertion's values are not JSON: {error}") from error
    # "Solution().method" names a method; the runner looks for it there by itself.
    return Cases(cases, entry.rpartition(".")[2] if entry else next(iter(names), None))


def _call_and_literal(test: ast.expr) -> tuple[ast.Call, ast.expr]:
    if (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.Eq)
        and len(test.ops) == 1
        and isinstance(test.left, ast.Call)
        and isinstance(test.left.func, ast.Name)
    ):
        return test.left, test.comparators[0]
    raise ValueError("not a call compared with a literal")


def _arguments(call: ast.Call) -> tuple[list[object], dict[str, object]]:
    kwargs: dict[str, object] = {}
    for word in call.keywords:
        if word.arg is None:
            raise ValueError("arguments in a ** are not read")
        kwargs[word.arg] = ast.literal_eval(word.value)
    return [ast.literal_eval(argument) for argument in call.args], kwargs
