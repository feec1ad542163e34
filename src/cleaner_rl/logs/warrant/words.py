"""What the texts of failed calls say, as data: denials, limits, and mistakes of form.

A mistake of form is one that the tool found before it did anything: a name that isn't there, an option that doesn't
exist, a syntax error. Only such a failure is one that nobody needs to see again.
"""

from __future__ import annotations

import re


class AnyCase:
    """A pattern in small letters that is looked for in texts of any case.

    Lower-casing the text takes a third of the time of `re.IGNORECASE`, which gives up most of what makes `re` fast.
    """

    def __init__(self, pattern: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        self.pattern = pattern
        self._compiled = re.compile(pattern, flags)

    def search(self, text: str) -> bool:
        """Return whether a text has it."""
        return self._compiled.search(text.lower()) is not None


DENIAL = AnyCase(
    r"""\b(?:
        permission\ denied | access\ (?:is\ )?denied | denied\ by | (?:has|have|was|been)\ denied | not\ permitted
      | operation\ not\ permitted | not\ allowed(?!\ when) | forbidden | unauthori[sz]ed
      | authentication\ (?:failed|required) | accessdenied | must\ be\ privileged | host\ key\ verification
      | certificate
      | read-only\ file\ system | must\ be\ (?:run\ as\ )?root | are\ you\ root | requires?\ approval | rejected\ by
      | doesn't\ want\ to\ (?:proceed|take) | declined | blocked\ by | policy | sandbox(?:ed)?\ (?:denied|violation)
      | 401 | 403 | protected\ branch | pre-commit | hook\ (?:id|declined|failed)
      | insufficient\ privileges? | row-level\ security
    )\b""",
    re.VERBOSE,
)
LIMIT = AnyCase(
    r"""\b(?:
        timed?\ ?out | deadline\ exceeded | rate\ limit | too\ many\ requests | 429 | quota | out\ of\ memory | oom
      | killed | resource\ temporarily\ unavailable | no\ space\ left | limit\ (?:exceeded|reached) | disk\ full
      | connection\ (?:refused|reset|aborted) | could\ not\ connect | couldn't\ connect
      | temporary\ failure | network\ is\ unreachable | service\ unavailable | 50[0234]
    )\b""",
    re.VERBOSE,
)
UNKNOWN_COMMAND = AnyCase(
    r"""command\ not\ found | :\ not\ found\s*$ | is\ not\ recognized\ as | is\ not\ an?\ \w+\ command
      | \bunknown\ (?:sub)?command | \bno\ such\ (?:(?:sub)?command|tool) | \binvalid\ (?:choice|command)
      | \bmissing\ script | \bunrecogni[sz]ed\ (?:sub)?command | \bunknown\ (?:task|target)
      | \bno\ rule\ to\ make\ target | \bno\ module\ named\ \S+\s*$ | \bfailed\ to\ spawn
      | \bcommand\ "[^"]+"\ not\ found | \bresource\ type\b""",
    re.MULTILINE | re.VERBOSE,
)
UNKNOWN_OPTION = AnyCase(
    r"""\b(?:
        unrecogni[sz]ed\ (?:\w+\ )?(?:arguments?|options?|flags?|type|parameters?)
      | unknown\ (?:\w+\ )?(?:options?|flag|switch|argument|parameter|predicate|primary)
      | (?:invalid|illegal|unexpected|bad)\ (?:\S+\ )?(?:option|argument|flag|value|usage|requirement|number|expression)
      | no\ such\ option | the\ following\ arguments\ are\ required | missing\ (?:(?:file\ )?operand|argument|required)
      | requires?\ (?:an?|at\ least|exactly)\ (?:\d+\ )?(?:argument|operand) | too\ (?:few|many)\ arguments
      | extra\ operand | usage:
      | ambiguous\ option | expected\ one\ argument | option\ requires | option\ \S+\ is\ unknown
      | flag\ provided\ but\ not\ defined | not\ specified;\ omitting | paths\ must\ precede | failed\ to\ parse
      | must\ (?:specify|provide|be\ specified|include) | (?:has|have)\ no\ upstream | argument\ not
      | no\ configuration\ file\ provided | not\ in\ gzip\ format | unsupported\ scheme | option\ not\ found
      | expects\ \\\ followed\ by | could\ not\ find\ an\ option | flags?\ parsing\ error
    )""",
    re.VERBOSE,
)
"""The program did not take its options, or lacks one."""
LACKING = AnyCase(
    r"""\b(?:no\ configuration\ file\ provided | must\ (?:be\ specified|provide|specify) | is\ required | are\ required
      | (?:has|have)\ no\ upstream | failed\ to\ read\ dockerfile)""",
    re.VERBOSE,
)
"""The program asks for something that the call doesn't have."""
SYNTAX = AnyCase(
    r"\b(?:syntax error|unexpected (?:eof|token|end of file)|unmatched|unterminated|parse error|invalid syntax"
    r"|unbalanced parenthes|bad substitution|compile error|unknown option to `s'|unknown command: |syntaxerror"
    r"|zsh: no matches found)",
)
NO_SUCH_PATH = AnyCase(
    r"""\b(?:
        no\ such\ file\ or\ directory | cannot\ (?:access|open|find|statx?) | can't\ (?:open|find|cd|read)
      | does\ not\ exist | file\ or\ directory\ not\ found | not\ a\ directory | is\ a\ directory | did\ not\ match\ any
      | could\ not\ (?:open|find)
      | not\ a\ git\ repository | no\ such\ (?:image|container|service|directory|path|ref|branch) | unknown\ revision
      | exists\ on\ disk,\ but\ not\ in | repository\ \S+\ not\ found | is\ not\ in\ std
      | unit\ \S+\ (?:could\ )?not\ (?:be\ )?found
      | could\ not\ resolve\ host | branch\ \S+\ not\ found | failed\ to\ read\ dockerfile
    )""",
    re.VERBOSE,
)
NO_SUCH_PACKAGE = AnyCase(
    r"\b(?:no matching (?:distribution|version)|unable to locate package|404 not found - get|no packages? found)",
)
ASKED_FOR = AnyCase(
    r"""\b(?:(?:which|what)\ (?:\w+\ ){0,2}(?:error|exception|traceback)
      | (?:show|see|tell|demonstrate)\b[^.?!\n]{0,40}\b(?:error|exception|traceback|fails?)\b
      | (?:error|exception)\b[^.?!\n]{0,40}\b(?:gives?|raises?|throws?|happens?))\b""",
    re.VERBOSE,
)
"""A task that asks for the failure itself."""
EVERYWHERE = AnyCase(r"\b(?:both|all|every\w*|each|occurrences|throughout)\b")
"""A task that is about more than one place."""
ATTEMPT = AnyCase(
    r"""\b(?:
        (?:first|initial|earlier|one|my)\ (?:\w+\ )?
        (?:attempt|try|edit|call|command|query|patch|replacement|statement|invocation)s?\b[^.;\n]{0,40}?
        \b(?:fail|miss|error|didn['’]t|did\ not|could(?:n['’]t|\ not)|crash|broke
        |had\ an?\ (?:typo|mistake|error|slip|wrong)|used\ (?:the|an?)\ wrong
        |was\ (?:wrong|rejected|refused|invalid|malformed|not\ accepted))
      | (?:failed|fails|errored|crashed|did(?:n['’]t|\ not)\ (?:work|match|apply|run)|was\ (?:rejected|refused))
        \ (?:\w+\ )?(?:at\ first|the\ first\ time|initially|on\ (?:the|my)\ first)
      | (?:at\ first|initially),?\ (?:it|this|that|i|the\ \w+)\ (?:\w+\ )?
        (?:fail|miss|error|did(?:n['’]t|\ not)|could(?:n['’]t|\ not)|got\ an?\ )
      | i\ (?:first|initially|originally|mistakenly|wrongly)\ (?:tried|typed|used|wrote|ran|called|passed|gave|mis)
      | i\ (?:mistyped|misspel|misnamed|retried|tried\ again|had\ to\ (?:retry|try\ again|repeat\ (?:it|the)))
      | (?:on|in|at|with)\ (?:the|my|a)\ (?:second|third)\ (?:attempt|try)\b
      | (?:took|needed)\ (?:me\ )?(?:two|three|several|a\ few|a\ second)\ (?:attempt|tr(?:y|ies))
      | (?:after|with|despite)\ (?:an?|one|two|some|the|my)\ (?:failed|wrong|unsuccessful)
        \ (?:attempt|try|call|edit|command)
      | my\ (?:own\ )?(?:typo|mistake|slip|misspelling)s?\b
    )""",
    re.VERBOSE,
)
"""Words that speak of an attempt that failed, whatever it was."""
CLAIM = AnyCase(
    r"""\b(?:
        fail\w* | errors? | errored | exceptions? | traceback | reject\w* | refus\w* | complain\w* | crash\w*
      | broke | breaks? | miss(?:ed|es|ing) | wrong\w* | invalid | illegal | unknown | unsupported | unrecogni[sz]ed
      | unexpected | undefined | typos? | mistakes? | misspel\w* | impossible | unable
      | cannot | not | no | never | nothing | without | instead
    )\b | n['’]t\b""",
    re.VERBOSE,
)
"""Words that say of something that it failed, isn't there or can't be done."""
GRAMMAR = re.compile(
    r"""a(?:nd|re|ll|ny|lso|fter) | b(?:ut|een|eing|efore) | c(?:an|all|ode|ould) | d(?:id|oe|one) | e(?:ach|rror|xit)
      | f(?:or|rom|ile|irst) | g(?:et|ot) | h(?:a|ad|ave|ere|ow) | i(?:t|nto) | just | l(?:et|ast|ess|ine)
      | m(?:ay|ust|ade|ake|ore|ost|ight) | not | o(?:ut|ff|ur|ne|nly|nto|ver) | per | r(?:un|ecent)
      | s(?:ee|ome|uch|hould) | t(?:he|hat|hi|hese|hose|here|heir|hen|han|ry|wo|raceback) | u(?:se|sed|sing|nder)
      | v(?:ia|ery) | w(?:a|ere|ith|hen|here|hich|ho|hat|hy|ould|ill) | you(?:r)?""",
    re.VERBOSE,
)
"""Words of which every error is made, without their last s: they don't say which error it was."""
DONE = AnyCase(
    r"\b(?:was|were|is|are|been)(?: \w+ly)? (?:created|added|edited|updated|modified|changed|saved|written|sent|posted"
    r"|deleted|removed|applied|inserted|uploaded|submitted|scheduled|started|renamed|moved|merged|published|registered|booked)\b",
)
_CLAUSE = re.compile(r"[.;:!,]\s|\n|\bbut\b")
_UNDONE = AnyCase(r"\b(?:no|not|nothing|none|never|could|cannot|can|must|should|if|unless|to|since)\b|n't\b")


def tells_of_change(told: str) -> bool:
    """Return whether a tool says that it has done something, although the call failed."""
    return any(DONE.search(clause) and not _UNDONE.search(clause) for clause in _CLAUSE.split(told))
