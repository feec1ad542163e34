"""What every call format must do."""

from __future__ import annotations

from random import Random

from cleaner_rl.tools import CallFormat, ParsedText, ToolSet, python_tool

TOOLS = ToolSet(python_tool())
PROGRAMS = (
    "print(1)",
    'name = "é 𝒳"\nif name:\n    print(f"{name!r}\\n")',
    "print('<b>', \"it's\", [[1, 2], {'a': 3}], `x` if 0 else '``')",
)
MANGLED = 300


class CallFormatContract:
    """Subclass it, name the subclass `Test…`, and give `make` and `write`."""

    names_tools = True
    """Whether a call says which tool it is for; false if there is only one that it can be for."""

    def make(self) -> CallFormat:
        """The format."""
        raise NotImplementedError

    def write(self, tool: str, code: str) -> str:
        """A call of this tool as a model writes it, with the program as its argument `code`."""
        raise NotImplementedError

    def test_it_reads_what_a_model_writes(self) -> None:
        """Name, program and place of a call."""
        for program in PROGRAMS:
            written = self.write("python", program)
            text = f"É 𝒳: let me see.\n{written}\nAnd then?"
            parsed = self._parse(text)
            assert len(parsed.calls) == 1, f"one call was written, {len(parsed.calls)} were found in {text!r}"
            call = parsed.calls[0]
            assert call.problem is None, f"a call that is right has the problem {call.problem!r}: {text!r}"
            assert call.name == "python", f"the tool is python, not {call.name!r}"
            assert call.code.strip("\n") == program, f"the program became {call.code!r}"
            assert text[call.start : call.end].strip() == written.strip(), (
                f"{call.start}:{call.end} are not the call's characters: {text[call.start : call.end]!r}"
            )
            assert parsed.action_start == call.start, "the action begins with the first call"

    def test_several_calls_keep_their_order(self) -> None:
        """Two calls in one text."""
        text = "\n".join(self.write("python", f"print({number})") for number in range(3))
        codes = [call.code.strip() for call in self._parse(text).calls]
        assert codes == ["print(0)", "print(1)", "print(2)"], f"three calls were written, these were read: {codes}"

    def test_words_are_no_call(self) -> None:
        """A text without a call, and an empty one."""
        for text in ("", "It is 42.", "a < b and b > c; {x: [1]} (y)"):
            parsed = self._parse(text)
            assert not parsed.calls, f"a call was found in {text!r}"
            assert parsed.action_start == len(text), "without a call, all of the text is reasoning"

    def test_a_call_that_is_only_thought_about_is_none(self) -> None:
        """Thinking ends at `</think>`."""
        call = self.write("python", "print(1)")
        assert not self._parse(f"<think>\n{call}\n</think>\nNo.").calls, "a call inside <think> was taken for one"
        after = self._parse(f"<think>\nHm.\n</think>\n{call}")
        assert len(after.calls) == 1, "the call after </think> was not found"

    def test_a_call_that_breaks_off_never_runs(self) -> None:
        """A model runs out of tokens anywhere."""
        for program in PROGRAMS:
            written = self.write("python", program)
            for end in range(len(written)):
                for call in self._parse(written[:end]).calls:
                    assert call.problem, f"half a call would be run: {written[:end]!r}"

    def test_a_call_that_cannot_be_run_tells_the_model_why(self) -> None:
        """No such tool, an empty program, no Unicode: a call with a problem, never silence."""
        wrong = {"an empty program": self.write("python", "  \n")}
        if self.names_tools:
            wrong["an unknown tool"] = self.write("no_such_tool", "print(1)")
        for what, text in wrong.items():
            calls = self._parse(text).calls
            assert calls, f"{what}: whatever opens like a call is one, with a problem; none was found in {text!r}"
            problem = calls[0].problem
            assert problem, f"{what}: the call has no problem and would be run: {text!r}"
            assert problem.strip().endswith("."), f"{what}: a problem is a sentence for the model: {problem!r}"
        for call in self._parse(self.write("python", "print('\ud800')")).calls:
            assert call.problem, "a program with a lone surrogate, which no file can hold, would be run"

    def test_nothing_that_a_model_may_write_raises(self) -> None:
        """Calls with pieces dropped, doubled and moved."""
        random = Random(0)
        whole = "".join(f"Hm.\n{self.write('python', program)}\n" for program in PROGRAMS) + "</think>"
        for _ in range(MANGLED):
            text = whole
            for _ in range(random.randint(1, 4)):
                a, b, c = sorted(random.randrange(len(text) + 1) for _ in range(3))
                text = random.choice([text[:a] + text[b:], text[:b] + text[a:], text[:a] + text[b:c] + text[a:b]])
                text = text or whole
            self._parse(text)

    def _parse(self, text: str) -> ParsedText:
        made = self.make()
        try:
            parsed = made.parse(text, TOOLS)
        except Exception as error:
            raise AssertionError(f"parse raised {error!r} on {text!r}; give a call with a problem instead") from error
        assert parsed.length == len(text), f"length is {parsed.length}, the text has {len(text)} characters"
        end = 0
        for call in parsed.calls:
            assert end <= call.start < call.end <= len(text), (
                f"a call at {call.start}:{call.end} after one that ends at {end}, in {len(text)} characters: {text!r}"
            )
            end = call.end
        assert made.parse(text, TOOLS) == parsed, f"the same text was read in two ways: {text!r}"
        return parsed
