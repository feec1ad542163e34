"""What the texts of failed calls say, as data: denials, limits, and mistakes of form.

A mistake of form is one that the tool found before it did anything: a name that isn't there, an option that doesn't
exist, a syntax error. Only such a failure is one that nobody needs to see again.
"""

from __future__ import annotations

import re

DENIAL = re.compile(
    r"""\b(?:
        permission\ denied | access\ (?:is\ )?denied | denied\ by | (?:has|have|was|been)\ denied | not\ permitted
      | operation\ not\ permitted | not\ allowed(?!\ when) | forbidden | unauthori[sz]ed | authentication\ (?:failed|required)
      | read-only\ file\ system | must\ be\ (?:run\ as\ )?root | are\ you\ root | requires?\ approval | rejected\ by
      | doesn't\ want\ to\ (?:proceed|take) | declined | blocked\ by | policy | sandbox(?:ed)?\ (?:denied|violation)
      | 401 | 403 | protected\ branch | pre-commit | hook\ (?:id|declined|failed)
      | insufficient\ privileges? | row-level\ security
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
LIMIT = re.compile(
    r"""\b(?:
        timed?\ ?out | deadline\ exceeded | rate\ limit | too\ many\ requests | 429 | quota | out\ of\ memory | oom
      | killed | resource\ temporarily\ unavailable | no\ space\ left | limit\ (?:exceeded|reached) | disk\ full
      | connection\ (?:refused|reset|aborted) | could\ not\ (?:connect|resolve) | couldn't\ connect
      | temporary\ failure | network\ is\ unreachable | service\ unavailable | 50[0234]
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
UNKNOWN_COMMAND = re.compile(
    r"(?:command\ not\ found|:\ not\ found\s*$|is\ not\ recognized\ as|is\ not\ a\ \w+\ command|[Uu]nknown\ "
    r"(?:sub)?command|[Nn]o\ such\ (?:sub)?command|invalid\ choice|[Mm]issing\ script|[Uu]nrecognized\ (?:sub)?command"
    r"|[Uu]nknown\ (?:task|target)|[Nn]o\ rule\ to\ make\ target|[Nn]o\ module\ named\ \S+\s*$)".replace(r"\ ", " "),
    re.MULTILINE,
)
UNKNOWN_OPTION = re.compile(
    r"\b(?:unrecogni[sz]ed (?:arguments?|options?|flags?)|unknown (?:shorthand )?(?:option|flag|switch|argument"
    r"|parameter|predicate|primary)|(?:invalid|illegal|unexpected|bad) (?:option|argument|flag|value|usage)"
    r"|no such option|the following arguments are required|missing (?:operand|argument|required|file operand)"
    r"|requires? (?:an?|at least|exactly) (?:argument|operand)|too (?:few|many) arguments|extra operand|usage:"
    r"|ambiguous option|expected one argument|option requires)",
    re.IGNORECASE,
)
SYNTAX = re.compile(
    r"\b(?:syntax error|unexpected (?:EOF|token|end of file)|unmatched|unterminated|parse error|invalid syntax"
    r"|unbalanced parenthes|bad substitution)",
    re.IGNORECASE,
)
NO_SUCH_PATH = re.compile(
    r"\b(?:no such file or directory|cannot (?:access|open|stat|find)|can't (?:open|find|cd)|does not exist"
    r"|file or directory not found|not a directory|is a directory|did not match any file|could not (?:open|find)"
    r"|not a git repository|no such (?:image|container|service|directory|path|ref|branch)|unknown revision)",
    re.IGNORECASE,
)
NO_SUCH_PACKAGE = re.compile(
    r"\b(?:no matching distribution|unable to locate package|404 not found - get)", re.IGNORECASE
)
