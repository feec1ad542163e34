"""The sentences by which tools and their harnesses say how a call ended, as tables.

A pattern of `BY_KIND` is matched at the beginning of a text, because a harness speaks instead of the tool. A shell's
text is what programs print, so its patterns are matched with the last lines, and count only if a program that the exit
code can be from is one that says so.

Limits: English, of the tools and harnesses that the tables name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from cleaner_rl.logs.commands import Command
from cleaner_rl.logs.signals import PROGRAMS
from cleaner_rl.tools import CallKind, Status

BEFORE = (
    r"(?:<tool_use_error>|<error(?:_details)?>|#+ (?:Result|Error)\n|(?!ERROR:)Error:|ERROR:|Tool error:|ToolError:|"
    r"McpError:|\s)*"
)
"""What may stand before a sentence. No part is read in two ways, in either case: n parts would be read in 2**n ways."""

DENIED = (
    r"The user (?:doesn't|does not) want to (?:proceed|take this action)",  # Claude Code
    r"\[?Request interrupted by user",
    r"Permission to \w+ .{0,2000}?(?:has been|was) denied",
    r".{0,80}?\bdenied by your permission settings",
    r"Claude requested permissions? to .{0,400}? but you haven't granted it",
    r"\w{1,60}:?[\w ]{0,60} hook (?:error|blocked|denied)",
    r"(?:Pre|Post)ToolUse:\w+ hook",
    r"\w{0,20} ?(?:command|patch|call|action|tool use|operation|edit|request)? ?(?:was |has been )?(?:rejected|"
    r"denied|declined|cancelled|canceled|refused|skipped) by (?:the )?(?:user|policy|administrator|operator|"
    r"reviewer|approver|human|safety)",
    r"(?:The )?(?:user|operator|human|reviewer|administrator) (?:has )?(?:rejected|denied|declined|cancelled|"
    r"canceled|refused|chose to skip|aborted|skipped|did not approve)",
    r"\[Operation Cancell?ed\]",  # Gemini CLI
    r"(?:Command|Tool call|Tool use)s? (?:was |has been |is )?(?:rejected|denied|blocked|declined|not approved|"
    r"not allowed|not permitted|disallowed)\b",
    r"(?:This |The )?(?:Command|Tool)\b.{0,200}? (?:is|was) (?:not (?:allowed|permitted)|blocked|denied|forbidden|"
    r"disallowed)\b",
    r"Tool ['\"`]?[\w.-]+['\"`]? (?:is |was )?not (?:allowed|permitted)\b",
    r"(?:This )?(?:command|tool) (?:call )?requires (?:approval|confirmation|permission)",
    r"(?:permission )?denied by (?:policy|the user|user|rule)",
    r"failed in sandbox\b.{0,80}?\bsandbox denied\b",  # Codex
)
"""A person or a policy said no. That is not a mistake in the call."""
BARRED = (
    r"(?:Action|Operation|Request|Edit|Query|Statement)s? (?:was |has been |is )?(?:rejected|denied|blocked|"
    r"declined|not approved|not allowed|not permitted|disallowed)\b",
    r"(?:Path|Operation|Action|Access to)\b.{0,200}? (?:is|was|are) (?:not (?:allowed|permitted)|blocked|denied|"
    r"forbidden|disallowed|restricted)\b",
    r"(?:Blocked|Denied|Rejected|Disallowed|Forbidden)(?: by|:| command)",
    r"(?:This )?(?:action|operation)\b.{0,80}? requires (?:approval|confirmation|permission)",
    r"Approval (?:was )?(?:denied|required|declined|rejected)",
    r"Not approved\b",
)
"""The same, in words that a program may print about something else."""
FORBIDDEN = (
    r"(?:Access (?:is )?denied|Unauthori[sz]ed|Forbidden)(?:[:.!]| -| for| to| access|\n|\Z)",
    r"Only (?:SELECT|read-only) (?:queries|statements) are (?:allowed|permitted)",
    r"(?:psycopg2\S*: |ERROR: +)?permission denied for (?:table|relation|schema|database|view|function|sequence)\b",
    r"(?:ERROR: +)?cannot execute \w+(?: \w+)? in a read-only transaction",
    r".{0,60}?attempt to write a readonly database",
    r"(?:ERROR \d+ \(\w+\).{0,40}?: )?(?:SELECT|INSERT|UPDATE|DELETE|DROP|CREATE|ALTER) command denied to user",
    r"(?:\w+ )?(?:API )?rate limit(?: has been)? (?:exceeded|reached)",
    r"You have exceeded .{0,40}?\b(?:rate limit|quota)",
    r"(?:ERROR: +)?must be owner of\b",
    r"(?:FATAL: +)?password authentication failed\b",
    r"(?:\w+ )?(?:operations|statements|queries) are not (?:allowed|permitted)",
    r".{0,40}?\bmust be within (?:one of )?the (?:workspace|allowed)",
    r"403 Access Denied\b",
    r"(?:HTTP )?429 Too Many",
    r"Too Many Requests\b",
    r"(?:(?:HTTP|Request|Failed|\w*Error)\b.{0,200}? )?(?:403 Forbidden|401 Unauthori[sz]ed)",
    r"(?:HTTP|Request|Failed|\w*Error)\b.{0,200}? (?:status(?: code)?:? |HTTP )?(?:401|403|429)\b",
    r"Resource not accessible by (?:integration|personal access token)",
    r"(?:Authentication failed: )?Bad credentials\b",
    r"Authentication (?:failed|required)\b",
    r"MCP error -?\d+: .{0,60}?(?:rate limit|not (?:allowed|permitted|authori[sz]ed)|forbidden|denied by|"
    r"unauthori[sz]ed)",
)
"""A server or a database doesn't allow it, or not so often."""
TIMED_OUT = (
    r"(?:The |Your )?(?:code|program|execution|command|tool|cell|script)\b.{0,160}?\btimed[ -]?out\b",
    r"(?:The )?command .{0,2000}?was cancelled because it took more than",  # SWE-agent
    r"\[(?:The )?command (?:timed out|has no new output)",  # OpenHands
    r"EXECUTION TIMED OUT",
    r"MCP error -32001\b",
    r"(?:Command|Execution|Query|Tool) (?:exceeded|reached) (?:the |its )?(?:time|maximum|timeout)",
)
EXPIRED = (
    r"(?:The |Your )?(?:query|request|operation|process|connection|call)\b.{0,160}?\btimed[ -]?out\b",
    r"(?:Timeout|Timed out)(?:[:.!]| (?:after|while|waiting|exceeded|reached|error|occurred|expired))",
    r"(?:ERROR: +)?canceling statement due to (?:statement|lock) timeout",
    r"(?:Maximum|Max) execution time\b",
    r"TimeoutError: .{0,80}?\bTimeout \d+ms exceeded",  # Playwright
    r"Code: \d+\. DB::Exception: Timeout exceeded\b",
    r"Lock wait timeout exceeded\b",
)
LIMITED = (
    r"File content \(.{0,60}?\) exceeds maximum allowed",  # Claude Code
    r"(?:Output|Response|Result|MCP tool .{0,80}? response)\b.{0,60}? (?:exceeds|exceeded) (?:the )?(?:maximum|"
    r"limit)",
)
BROKEN = (
    r"MCP error -32000\b",
    r"Connection closed\b",
    r"Not connected\b",
    r"(?:.{0,40}?: )?(?:502 Bad Gateway|503 Service Unavailable|504 Gateway|500 Internal Server Error)\b",
    r"(?:fetch failed|socket hang up)\b",
    r"(?:could not|can't|cannot|failed to|unable to) connect to\b",
    r"connection to server\b.{0,120}? failed",
    r".{0,60}?\b(?:ECONNREFUSED|ECONNRESET|ENOTFOUND|EAI_AGAIN|ETIMEDOUT)\b",
)
"""The tool or its server broke."""
REJECTED = (
    r"<tool_use_error>",  # Claude Code
    r"(?:McpError: )?MCP error -?\d+\b",
    r"Error (?:executing|calling|running|invoking) (?:tool|function|MCP tool|query)\b",  # verl, MCP servers
    r"Error (?:when|while) (?:executing|calling|running)\b",
    r"An error occurred while (?:running|executing) the tool\b",  # OpenAI's agents
    r"(?:The )?tool (?:call|execution) failed\b",  # Cline
    r"(?:Tool|Function) (?:raised|threw) an (?:exception|error)\b",
    r"Error in code parsing\b",  # smolagents
    r"Code execution failed\b",
    r"(?:Tool|Function) ['\"`]?[\w.-]+['\"`]? (?:not found|does not exist|is not available)\b[^\n]{0,80}\Z",
    r"No \w+ (?:code|command|action) was found in your last response\b",  # InterCode
    r"(?:Unknown|No such) tool\b",
    r"Method not found\b",
    r"Invalid (?:JSON|arguments|parameters|params) (?:for|in|to) (?:tool|function)\b",
    r"InputValidationError\b",
    r"ToolException\b",
    r"ToolError\b",
    r"failed to parse function arguments\b",
    r"OCI runtime exec failed\b",  # Docker
)
"""The harness could not do it, whatever the tool is."""
UNFIT = (
    r"(?:Input |Output )?validation error\b",
    r"\d+ validation errors? for \w+",
    r"The required parameter .{0,80}? is missing\b",
    r"Missing required (?:parameter|argument|property|field)",
)
"""The arguments are not what the tool takes."""

EDIT_FAILED = (
    r"Permission denied\b",
    r".{0,80}?\bmade no changes\b",
    r".{0,120}?\b(?:does not|doesn't|did not|didn't) match\b",
    r".{0,120}?\b(?:not allowed|not supported|unrecognized|is required)\b",
    r"No (?:replacement|edit|change|insertion)s? (?:was|were) (?:performed|made|applied)",
    r"(?:The )?(?:String|Text|Content|old_str\w*|old text|search (?:string|text|block|pattern))\b.{0,4000}? "
    r"(?:not found|did not appear|does not (?:appear|exist|match)|was not found|is not unique|not unique|must "
    r"be unique|is required)",
    r"(?:Could|Can|Did) ?not (?:find|locate|match|apply|read|write|open|create|edit)\b",
    r"(?:Couldn|Can|Didn)'t (?:find|locate|match|apply)",
    r"Multiple (?:occurrences|matches)\b",
    r"Found (?:\d+|multiple|more than one) (?:matches|occurrences)\b",
    r"Found 0 \w+",
    r"File (?:has not been read|has been (?:modified|unexpectedly modified)|does not exist|not found|already "
    r"exists|is not open)",
    r"(?:The )?(?:file|path|directory)\b.{0,500}? (?:does not exist|not found|already exists|is not an "
    r"absolute path|is a directory|cannot be|could not be|is outside|is not writable|is binary)",
    r".{0,200}?(?<!\S)(?:nothing|no (?:file|change|line|edit)s?) (?:was|were|has been|have been) (?:changed|deleted|"
    r"edited|made|modified|moved|removed|replaced|written)\b",
    r"Invalid [`'\"]?(?:path|view_range|insert_line|line|context|patch|range|old_str|parameter|diff|argument|"
    r"hunk|edit|command)",
    r"(?:Missing|Parameter) [`'\"]?\w+[`'\"]? (?:is|parameter|required)",
    r"Parameter `\w+` is required",
    r"(?:old_string|old_str|search) and (?:new_string|new_str|replace)\w* (?:are|is) (?:exactly )?(?:the same|"
    r"identical)",
    r"No changes to (?:make|apply)",
    r"(?:apply_patch|patch) (?:verification )?(?:failed|error)",
    r"error: patch",
    r"Patch (?:failed|does not apply)",
    r"(?:patching file .*\n|Hunk #\d+ succeeded.*\n)*Hunk #?\d+ FAILED",
    r"(?:patching file .*\n)*patch: \*{4} ",
    r"Failed to (?:edit|find|apply|write|create|read|match|replace|insert|open|parse|save|delete|update|patch)\b",
    r"(?:#+ )?\d+ SEARCH/REPLACE blocks? failed",
    r"SearchReplaceNoExactMatch",
    r"The SEARCH (?:section|block)",
    r"Unable to (?:apply|find|edit|write|read)",
    r"No sufficiently similar match",
    r"No (?:exact )?match(?:es)? (?:was |were )?found",
    r"No edit history",
    r"Nothing to undo",
    r"No file (?:is )?open",
    r"ENOENT\b",
    r"EACCES\b",
    r"EISDIR\b",
    r"EEXIST\b",
    r"EROFS\b",
    r"\[Errno \d+\]",
    r"Ran into .{0,200}? while trying to",
    r"Your (?:proposed )?edit has introduced new syntax error",
    r"Syntax error in (?:the )?patch",
    r"Cannot (?:overwrite|edit|create|write|insert|find)\b",
    r"Expected (?:exactly )?\d+ (?:occurrence|match|replacement)",
    r"Line (?:number )?\S+ (?:is )?(?:out of range|does not exist|beyond)",
    r"(?:PermissionError|FileNotFoundError|FileExistsError|IsADirectoryError|UnicodeDecodeError|OSError)\b",
)
AFFIRMED = r"(?:(?!\s(?:not|nothing|no|none|never|cannot|\w+n't)\s).)"
"""A character that no negation begins with: "could not be found; nothing was deleted" tells of no deletion."""
EDIT_OK = (
    r"--- \S+\n\+\+\+ \S+\n@@ ",  # OpenHands
    r"(?:(?:patching file|Hunk #\d+ succeeded) .*(?:\n|\Z))+\Z",
    r"`{3,}diff\n",  # the file system server of MCP
    r"\[File \S+ (?:created|edited|updated|written)\b",
    r"The apply model made the following changes\b",  # Cursor
    r"(?!.{0,80}?\b(?:not|un|0) ?successfully).{0,80}?\bsuccessfully\b",
    r"\[File: ",  # SWE-agent
    r"\s*\d+(?:\t|→)",  # numbered lines
    r"(?:The )?(?:following )?(?:file|notebook|content|change|edit|patch)s?\b" + AFFIRMED + r"{0,500}? "
    r"(?:has been|have been|was|were|is)(?: successfully)? (?:edited|updated|created|written|modified(?! since)|saved|"
    r"deleted|applied|made)\b",
    r"(?:New )?[Ff]ile (?:created|written|edited|updated|saved|deleted|modified)(?: successfully)?",
    r"Success(?:fully)?\b",
    r"Here(?:'s|'re| is| are) the\b",
    r"Updated? (?:file|the following|cell)",
    r"Applied \d+",
    r"Edit(?:s)? applied",
    r"Done\b",
    r"Last edit to .{0,500}? undone",
    r"Text replaced\.",
    r"Wrote \d+",
    r"Created\b",
    r"Inserted\b",
    r"Replaced \d+",
    r"Deleted\b",
    r"Saved\b",
    r"Edited\b",
    r"Modified\b",
    r"Overwrote\b",
    r"Patch applied",
    r"The (?:edit|patch|change)s? (?:was|were|has been|have been) (?:applied|made)",
)
SQL_FAILED = (
    r"\(?_?[a-z]\w*(?:\.\w+)*\.(?:errors\.\w+|\w*(?:Error|Exception))\b",
    r"\d{3} Not found: ",
    r"(?:\w+ )?(?:Parse|Syntax|Runtime|Binder|Catalog|Parser|Conversion|Constraint|Invalid Input|Out of Range|"
    r"Type|IO|Dependency|Transaction|Mismatch Type|SQL compilation|SQL|Database|Query|Execution)(?: Error| "
    r"error|Error)\b:?",
    r"Error:? (?:near|no such|in prepare|executing|stepping|while|database|UNIQUE|incomplete|table|column|\d+|"
    r"running|at line)",
    r"(?:\(?(?:sqlite3|psycopg2?|pymysql|mysql|duckdb|sqlalchemy|asyncpg|pyodbc|cx_Oracle|"
    r"snowflake)\b[\w.]*\)?[.: ]*)?\(?\w*(?:Operational|Programming|Integrity|Data|Internal|Database|"
    r"NotSupported|Interface)Error\b",
    r"(?:psql:\S+ )?ERROR: +\S",
    r"ERROR \d{4} \([0-9A-Z]{5}\)",
    r"ERROR \d+ at line",
    r"Msg \d+, Level \d+",
    r"ORA-\d{5}",
    r"Code: \d+\. DB::Exception",
    r"(?:FATAL|PANIC): +\S",
    r"\[?SQLSTATE",
    r"\d{6} \([0-9A-Z]{5}\): ",  # Snowflake
    r"\(?(?:['\"]\w{5}['\"], ?['\"])?\[(?-i:[0-9A-Z]{5})\] ?(?:\[[a-z]|ERROR\b)",  # ODBC
    r"(?-i:\[[A-Z]+(?:[_.][A-Z]+)+\] [A-Z])",  # Spark
    r"line \d+:\d+: ",  # Trino
    r"SQL error\b",
    r"SQL logic error",
    r"You have an error in your SQL syntax",
    r"Unrecognized name\b",
    r"no such (?:table|column|function|module)\b",
    r"(?:relation|column|table|function|schema|view|type|database) [\"'`]?[\w.\"]+[\"'`]?(?:\(.*\))? (?:of "
    r"relation \S+ )?does not exist",
    r"(?:UNIQUE|NOT NULL|FOREIGN KEY|CHECK) constraint failed",
    r"duplicate key value violates",
    r"syntax error at or near",
    r"near \".{0,80}?\": syntax error",
    r"(?:Table|View|Column|Index|Unknown column|Unknown table) ['\"`]\S+ (?:doesn't exist|already exists|in )",
    r"(?:table|relation|index|view) \S+ already exists",
    r"invalid input syntax\b",
    r"division by zero\b",
    r"database is locked",
    r"ambiguous column",
    r"misuse of aggregate",
    r"incomplete input",
    r"unrecognized token",
    r"(?:The )?(?:query|statement)\b.{0,60}? (?:failed|could not be)",
    r"Failed to (?:execute|run|parse)",
    r"Invalid (?:query|SQL|identifier)",
    r"400 (?:Bad Request|.{0,40}?:)",
    r"Table .{0,80}? was not found",
    r"Not found: (?:Table|Dataset)",
    r"current transaction is aborted",
    r"missing FROM-clause",
    r"aggregate functions are not allowed",
    r"table \S+ has \d+ columns but \d+ values were supplied",
    r"\d+ values for \d+ columns",
    r"(?:sub-select|row value) (?:returns \d+ columns|misused)",
    r"(?:datatype mismatch|malformed JSON|no such savepoint|wrong number of arguments to function)\b",
    r"Incorrect number of bindings\b",
    r"You can only execute one statement at a time",
    r"Deadlock (?:found|detected)\b",
    r"Duplicate entry '",
    r"Column count doesn't match\b",
    r"(?:Data too long|Out of range value) for column\b",
    r"Cannot (?:add|delete) or update a (?:parent|child) row",
    r"Subquery returns more than\b",
    r"(?:null value in column|value too long for type|operator does not exist|column reference \S+ is ambiguous)\b",
    r"(?:insert or update on table|update or delete on table|new row for relation) \S+ violates\b",
    r"Incorrect syntax near\b",
    r"Invalid (?:object|column) name\b",
)

SQL_BEFORE = r"(?:Error:? |Query failed: |\s)*?"
"""What may stand before a database's sentence, which may begin in the same way."""


def _one_of(patterns: Iterable[str], before: str = BEFORE, flags: int = 0) -> re.Pattern[str]:
    return re.compile(before + "(?:" + "|".join(f"(?:{pattern})" for pattern in patterns) + ")", flags)


Sentences: TypeAlias = tuple[tuple[Status, re.Pattern[str]], ...]
BY_HARNESS: Sentences = (
    (Status.REFUSED, _one_of(DENIED, flags=re.IGNORECASE)),
    (Status.TIMEOUT, _one_of(TIMED_OUT, flags=re.IGNORECASE)),
    (Status.OUTPUT_LIMIT, _one_of(LIMITED)),
    (Status.ERROR, _one_of(REJECTED, "", re.IGNORECASE)),
)
"""Said instead of a tool's result, whatever the tool is."""
BY_SERVICE: Sentences = (
    (Status.REFUSED, _one_of((*BARRED, *FORBIDDEN), flags=re.IGNORECASE)),
    (Status.TIMEOUT, _one_of(EXPIRED, flags=re.IGNORECASE)),
    (Status.FAULT, _one_of(BROKEN)),
    (Status.ERROR, _one_of(UNFIT, flags=re.IGNORECASE)),
)
"""Said by tools that run no programs; a program could print it."""
BY_KIND: Mapping[CallKind, Sentences] = {
    CallKind.PYTHON: BY_HARNESS,
    CallKind.SHELL: BY_HARNESS,
    CallKind.EDIT: (
        (Status.OK, _one_of(EDIT_OK, "", re.IGNORECASE)),
        (Status.ERROR, _one_of(EDIT_FAILED, flags=re.IGNORECASE)),
        *BY_SERVICE,
        *BY_HARNESS,
    ),
    CallKind.SQL: (*BY_SERVICE, *BY_HARNESS, (Status.ERROR, _one_of(SQL_FAILED, SQL_BEFORE, re.IGNORECASE))),
    CallKind.OTHER: (BY_SERVICE[0], BY_HARNESS[0], *BY_SERVICE[1:], *BY_HARNESS[1:]),
}
"""The sentences of each kind of tool, those that win first."""


class Printed(NamedTuple):
    """What a program prints when it has ended so."""

    status: Status
    pattern: re.Pattern[str]
    programs: frozenset[str] = frozenset()
    """Names of the programs; none: a group `program` of the pattern names it, or it may be any."""


def _named(names: str) -> frozenset[str]:
    """Return names of programs. A `_` in a name is a space: `git_commit`."""
    return frozenset(name.replace("_", " ") for name in names.split())


def _printed(status: Status, pattern: str, programs: str = "") -> Printed:
    return Printed(status, re.compile(pattern, re.MULTILINE), _named(programs))


SHELL = r"(?:\S*/)?(?:ba|z|da|k|a)?sh(?:: line \d+|: \d+|:\d+)?: "
TROUBLE = (
    r"command not found|not found|[Nn]o such|Permission denied|Is a directory|Not a directory|File exists|"
    r"cannot|can't|[Cc]ould not|[Cc]ouldn't|[Uu]nable|[Ii]nvalid|unrecognized|[Uu]nknown|illegal|missing|"
    r"[Ff]ailed|error|fatal|Operation not permitted|refused|No space left|Device or resource busy|"
    r"Text file busy|not specified|ambiguous|expected|[Tt]oo many|\*\*\*|unterminated|unexpected|unmatched|"
    r"[Bb]ad |does not|doesn't|not a |not recognized|No module named|Error|not known|omitting|no \S+ in \("
)
"""What programs say behind their name when they can't do it."""
NODE = "node npm npx yarn pnpm tsx ts-node bun jest vitest tsc next vite eslint mocha"
PYTEST = "pytest py.test tox nox make npm"
FAILED_LAST = (
    _printed(Status.ERROR, SHELL + r"(?P<program>[^:\n]+): "),
    _printed(
        Status.ERROR, r"zsh: (?:command not found|no such file or directory|permission denied): (?P<program>\S+)$"
    ),
    _printed(Status.ERROR, r"'(?P<program>[^']+)' is not recognized as an internal or external command"),
    _printed(Status.ERROR, rf"(?:\S*/)?(?P<program>[\w.+-]+) ?: (?!warning|note).*?(?:{TROUBLE})"),
    _printed(Status.ERROR, r"(?:fatal|error): |merge: \S+ - not something|No stash entries", "git"),
    _printed(
        Status.CRASHED, r"(?:Segmentation fault|Aborted|Illegal instruction|Bus error|Killed)(?: +\(core dumped\))?$"
    ),
    _printed(Status.CRASHED, SHELL + r" *\d+ (?:Segmentation fault|Aborted|Illegal instruction|Bus error|Killed)\b.*$"),
)
"""First or last lines. The program that they name is one that the exit code can be from."""
FAILED_TAIL = (
    _printed(Status.ERROR, r"^Expecting .* \(char \d+\)$|^Extra data: .* \(char \d+\)$", "python"),
    _printed(Status.ERROR, r"^not ok \d+|^# fail [1-9]", f"{NODE} prove"),
    _printed(Status.ERROR, r"^(?:fatal|error): |^ ! \[rejected\]|^CONFLICT \(|^Automatic merge failed", "git"),
    _printed(Status.ERROR, r"^(?:nothing (?:added )?to commit|no changes added to commit)", "git_commit"),
    _printed(
        Status.ERROR,
        r"^npm (?:ERR!|error)|^(?:error|Error): |ELIFECYCLE|^Node\.js v\d|^\S+\(\d+,\d+\): error TS\d+|error TS\d+:",
        NODE,
    ),
    _printed(
        Status.ERROR,
        r"^Tests: +(?:\d+ \w+, )*\d+ failed|^Test Files +\d+ failed|^\s*[1-9]\d* failing$|✖ \d+ problems? \([1-9]",
        NODE,
    ),
    _printed(
        Status.ERROR,
        r"^(?:ERROR|error): |^× |^ *╰─>|^WARNING: Package\(s\) not found",
        "pip pip3 uv poetry conda pipenv",
    ),
    _printed(Status.ERROR, r"^E: |^Err:", "apt apt-get"),
    _printed(Status.ERROR, r"^curl: \(\d+\)", "curl"),
    _printed(Status.ERROR, r"^wget: |ERROR \d{3}: |^\S+: .*failed: ", "wget"),
    _printed(Status.ERROR, r"^(?:exit status [1-9]\d*|FAIL(?:\t.*)?|panic: .*|\S+\.go:\d+:\d+: .*|go: .*)$", "go"),
    _printed(Status.ERROR, r"^error(?:\[E\d+\])?: |test result: FAILED|^note: run with `RUST_BACKTRACE", "cargo rustc"),
    _printed(
        Status.ERROR,
        r"^\[ERROR\] |^BUILD FAILED|^FAILURE: Build failed|error: .*$|^Exception in thread",
        "mvn gradle gradlew ant javac java kotlinc",
    ),
    _printed(Status.ERROR, r"^-- Configuring incomplete|^CMake Error", "cmake"),
    _printed(
        Status.ERROR,
        r"\berror: |^compilation terminated|^collect2: error|^[1-9]\d* errors? generated|undefined reference|"
        r"^ninja: build stopped",
        "gcc g++ cc c++ clang clang++ ld ninja make cmake",
    ),
    _printed(Status.ERROR, r"^(?:g?make)(?:\[\d+\])?: \*\*\* ", "make gmake"),
    _printed(Status.ERROR, r"^Execution halted$|^Error in ", "Rscript R"),
    _printed(Status.ERROR, r"^Found [1-9]\d* errors?\b|^[1-9]\d* errors?, \d+ warnings|: error: ", "mypy ruff pyright"),
    _printed(Status.ERROR, r"^Found [1-9]\d* errors? in ", "tsc"),
    _printed(
        Status.ERROR,
        r"^=*\s*(?:\d+ \w+, )*[1-9]\d* (?:failed|errors?)\b.* in [\d.]+s|"
        r"^=*\s*(?:no tests ran|\d+ deselected) in |^ERROR: ",
        PYTEST,
    ),
    _printed(Status.ERROR, r"^FAILED \((?:\w+=\d+(?:, )?)+\)$|^NO TESTS RAN$", "python unittest manage.py"),
    _printed(
        Status.ERROR,
        r"^Error from server|^error: |^The connection to the server|^Unable to connect to the server",
        "kubectl",
    ),
    _printed(
        Status.ERROR,
        r"^Error response from daemon|^docker: |^ERROR: |^Error: |^Cannot connect to the Docker daemon|^failed to ",
        "docker docker-compose podman",
    ),
    _printed(Status.ERROR, r"^[│╷ ]*Error: ", "terraform tofu helm"),
    _printed(Status.ERROR, r"^(?:psql: )?(?:ERROR|FATAL): +|^psql: error: ", "psql"),
    _printed(Status.ERROR, r"^ERROR \d+ \(", "mysql mariadb"),
    _printed(Status.ERROR, r"^(?:Parse error|Error|Runtime error)\b.*: ", "sqlite3 duckdb"),
    _printed(Status.ERROR, r"^jq: error|^parse error: ", "jq"),
    _printed(
        Status.ERROR,
        r"^\S+:\d+:in .*\(\w*(?:Error|Exception)\)$|examples?, [1-9]\d* failures?",
        "ruby rspec bundle rake rails",
    ),
    _printed(Status.ERROR, r"^(?:PHP )?(?:Fatal|Parse) error: |^FAILURES!$", "php phpunit composer"),
    _printed(Status.ERROR, r"^syntax error at .* line \d+|^Execution of .* aborted|^Can't (?:open|locate) ", "perl"),
    _printed(
        Status.ERROR,
        r"^(?:oh no|error: )|would be reformatted|^would reformat|^ERROR: .* Imports are incorrectly",
        "black isort ruff",
    ),
    _printed(
        Status.ERROR,
        r"^\S+: Permission denied \(|^Host key verification failed|^ssh: |^Connection (?:closed|reset) by ",
        "ssh scp sftp rsync",
    ),
    _printed(Status.ERROR, r"^gh: |^HTTP 4\d\d|GraphQL: |^could not |\bfailed: ", "gh"),
    _printed(Status.ERROR, r"^An error occurred \(\w+\)|^fatal error: |^Unable to locate credentials", "aws"),
    _printed(Status.ERROR, r"^ERROR: \(gcloud|^BadRequestException|^CommandException", "gcloud gsutil"),
)
"""Lines at the end of what these programs print."""
OK_TAIL = (
    _printed(
        Status.OK,
        r"^=*\s*\d+ passed(?:, \d+ (?:skipped|warnings?|deselected|xfailed|xpassed|subtests passed)|"
        r", 0 (?:failed|errors?))* in ",
        PYTEST + " python",
    ),
    _printed(Status.OK, r"^(?:OK|OK \(.*\))$", "python unittest manage.py"),
    _printed(Status.OK, r"^Success: no issues found|^All checks passed!|^0 errors, ", "mypy ruff pyright"),
    _printed(Status.OK, r"already formatted$|left unchanged\.$", "ruff black"),
    _printed(Status.OK, r"^test result: ok\.", "cargo"),
    _printed(Status.OK, r"^ok\s+\S+\s+[\d.(]", "go"),
    _printed(Status.OK, r"^BUILD SUCCESS", "mvn gradle gradlew ant"),
    _printed(Status.OK, r"^Successfully installed|^Requirement already satisfied", "pip pip3"),
    _printed(Status.OK, r"^ [*+ ] (?:\[new (?:branch|tag)\]|[0-9a-f]{7,}\.\.+[0-9a-f]{7,}) .*->", "git_push"),
    _printed(Status.OK, r"^(?:added|changed|removed) \d+ packages?\b|^up to date\b", "npm"),
    _printed(Status.OK, r"^No changes\. |^(?:Apply|Destroy) complete!", "terraform tofu"),
    _printed(Status.OK, r"^Everything up-to-date|^Already up to date|^Successfully rebased", "git"),
    _printed(
        Status.OK,
        r"^Tests: +\d+ passed, \d+ total|^\s*Tests +\d+ passed|^\s*\d+ passing\b|^found 0 vulnerabilities",
        NODE,
    ),
)
READERS = _named(
    """
    ack ag awk basename bat cat cd column cut date df dirname dmesg du echo egrep env fd fgrep file find free gawk
    git_blame git_branch git_diff git_grep git_log git_ls-files git_remote git_show git_status grep head hexdump
    history hostname id join journalctl less ls man more nl od paste printenv printf pwd readlink realpath rg sed
    seq sleep sort stat strings tac tail tr tree true uname uniq wc which whoami xxd zcat zgrep
    """
)
"""Programs whose own errors have their name before them: whatever else they print is what they were to show."""
REPORTERS = _named(
    """
    ./ [ [[ ansible-lint bandit bash black clang-format cmp codespell comm cspell diff eslint exit expr false flake8
    gofmt golangci-lint golint hadolint isort let markdownlint mypy nc npm_audit npm_outdated perl pgrep php ping
    pip_check prettier ps pylint pyright ruby ruff safety semgrep service sh shellcheck stylelint systemctl test tsc
    vulture yamllint zsh
    """
)
"""Programs that tell what they found by their exit code, and print nothing about a failure."""
SILENT = _named(
    """
    . alias awk cat cd chmod chown cp cut date dd echo export find git_add git_branch git_checkout git_clean
    git_diff git_fetch git_log git_merge git_mv git_rebase git_reset git_restore git_rm git_stash
    git_status git_switch git_tag gunzip gzip head install kill ln ls mkdir mv patch pip_install popd printf
    pushd rm rmdir rsync sed set sleep sort source sqlite3 sync tail tar tee touch tr true truncate umask uniq unset
    unzip wait wc zip
    """
)
"""Programs that print nothing when all is well, and something when it is not."""


BEGINNING = 100
HARNESS_WORDS = (
    *("user", "permission", "reject", "denied", "deny", "declin", "cancel", "refus", "skip", "block", "approv", "hook"),
    *("operator", "human", "reviewer", "administrator", "action", "operation", "command", "tool", "path", "access"),
    *("forbid", "disallow", "interrupt", "timed out", "timeout", "time", "code", "program", "exec", "query", "request"),
    *("cell", "script", "process", "file content", "output", "response", "result", "error", "function", "method"),
    *("edit",),
)
"""Words of which each sentence of a harness has one in its first `BEGINNING` characters."""
_HARNESS_WORD = re.compile("|".join(map(re.escape, HARNESS_WORDS)))
TAIL_LINES = 8
"""Lines at the end of a shell's text that `FAILED_TAIL` and `OK_TAIL` are looked for in."""
NO_OUTPUT = re.compile(r"[(\[<]?(?:no (?:output|content|stdout)|empty output|empty)[)\]>.]?", re.IGNORECASE)
"""What stands for an empty output."""
SILENTLY_OK = re.compile(
    r"(?:<system>)?(?:Your |The )?(?:command|tool|code|program|script|bash|cell)\b.{0,60}?"
    r"(?:(?:ran|executed|completed|finished|succeeded)\b.{0,40}?(?:successfully|without (?:output or )?errors?)|"
    r"(?:successfully )?(?:completed|ran|executed) with no output)",
    re.IGNORECASE,
)
"""What harnesses write where a call gave nothing and nothing went wrong."""


DIED = re.compile(
    r"(?:The )?kernel (?:appears to have |has |was )?(?:died|crashed|restarted|killed)\b|Restarting (?:the )?kernel\b|"
    r"(?:Segmentation fault|Aborted|Illegal instruction|Bus error) +\(core dumped\)$",
    re.IGNORECASE,
)
"""Last words about the interpreter itself, which no program lives to print."""
MAY_HAVE_DIED = re.compile(r"(?:Segmentation fault|Aborted|Illegal instruction|Bus error|Killed)$")
"""The same, in a word that may be data."""
STOPPED_LATE = re.compile(r"^EXECUTION TIMED OUT BECAUSE NO OUTPUT WAS PRODUCED\b", re.MULTILINE)
"""What SWE-agent writes behind what a command had printed before it was stopped."""
STOPPED_AT = re.compile(r"^\[The command (?:timed out|has no new output) ", re.MULTILINE)
"""What OpenHands writes behind the output of a command that it waits for no longer."""
ERROR_PAGE = re.compile(
    r"\s*<(?:!DOCTYPE|html)\b.{0,1000}?<title>\s*(?:HTTP |Error |Status )*(?P<code>[45]\d\d)\b[\s:(-]*(?:error|"
    r"(?:page |file )?not found|forbidden|unauthori[sz]ed|bad request|bad gateway|service (?:temporarily )?unavailable|"
    r"gateway time-?out|request time-?out|internal server error|too many requests|gone|method not allowed)"
    r"[!.)\d]*\s*(?:[|-][^<]*)?</title>",
    re.IGNORECASE | re.DOTALL,
)
"""The page that a server sends in place of the one that was asked for."""
LONGEST_PAGE = 3000
"""Characters of an error page at most. A longer one may be about that error."""


def said(text: str, kind: CallKind, sentences: Sentences = ()) -> Status | None:
    """Return how a call ended by the sentence that a text begins with; None if there is none.

    `sentences`: those to look for, instead of all of this kind of tool.
    """
    if kind in PROGRAMS:
        beginning = text[:BEGINNING].lower()
        if not _HARNESS_WORD.search(beginning):
            return None  # nearly all texts of programs
    return next((status for status, pattern in sentences or BY_KIND[kind] if pattern.match(text)), None)


def printed(lines: Sequence[str], command: Command) -> tuple[Status, ...]:
    """Return how a shell command ended, by the last lines of what it printed: nothing, one status, or two at odds."""
    # A program that says first what is wrong may go on with advice. It is the one that decides if all of them do.
    alone = len(lines) <= TAIL_LINES and all(program <= command.deciding for program in command.programs)
    for each in FAILED_LAST:
        for line in (lines[-1], lines[0]) if alone else (lines[-1],):
            found = each.pattern.match(line)
            if found and _is_of(each, found, command):
                return (each.status,)
    if command.runs_only(READERS):
        return ()
    tail = "\n".join(lines[-TAIL_LINES:])
    tables = (
        next((each.status for each in table if each.programs & command.deciding and each.pattern.search(tail)), None)
        for table in (FAILED_TAIL, OK_TAIL)
    )
    return tuple(status for status in tables if status is not None)


def _is_of(line: Printed, found: re.Match[str], command: Command) -> bool:
    """Return whether a program that the exit code can be from has printed this line."""
    if line.status is Status.CRASHED or line.programs & command.deciding:
        return True
    program = found.groupdict().get("program")
    name = "" if program is None else program.strip().rpartition("/")[2]
    return name in command.deciding or name == "-c" or name.startswith("syntax error")


_SHELL_LINE = re.compile(f"^{SHELL}", re.MULTILINE)


def complaints(text: str, command: Command) -> bool:
    """Return whether the shell, or a program by its name, complains in some line of a text."""
    programs = [name for program in command.programs for name in program]
    if not _SHELL_LINE.search(text) and not any(f"\n{name}: " in f"\n{text}" for name in programs):
        return False  # nearly all texts, without a regular expression for each command
    names = "|".join(map(re.escape, programs))
    return re.search(rf"^(?:{SHELL}|(?:{names or SHELL}): )(?!.*binary file matches)", text, re.MULTILINE) is not None
