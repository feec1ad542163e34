"""What is known of the programs that shells run, as data: which of them only look, which stop before they do anything,
which can be run twice, and which options switch a safeguard off."""

from __future__ import annotations

import re

WRAPPERS = frozenset({"time", "nice", "nohup", "env", "command", "exec", "stdbuf", "xvfb-run"})
"""Programs that run the one that follows them."""
RUNNERS = {"poetry": "run", "uv": "run", "pipenv": "run", "npx": "", "bundle": "exec", "pdm": "run", "hatch": "run"}
SAME_PROGRAMS = (
    {"python", "python3", "python3.10", "python3.11", "python3.12", "python3.13", "py"},
    {"pip", "pip3"},
    {"node", "nodejs"},
    {"apt", "apt-get"},
    {"vi", "vim"},
    {"egrep", "grep", "fgrep"},
)
READERS = frozenset(
    {
        *("ls", "cat", "head", "tail", "grep", "egrep", "fgrep", "rg", "ag", "find", "fd", "wc", "sort", "uniq", "cut"),
        *("awk", "sed", "tr", "echo", "printf", "pwd", "which", "type", "file", "stat", "du", "df", "ps", "env"),
        *("printenv", "date", "whoami", "id", "uname", "tree", "less", "more", "nl", "tac", "jq", "yq", "xxd", "od"),
        *("basename", "dirname", "realpath", "readlink", "column", "seq", "sleep", "true", "test", "[", "hostname"),
        *("diff", "cmp", "comm", "md5sum", "sha256sum", "strings", "man", "help", "nproc", "free", "uptime", "cal"),
        *("journalctl", "lsof", "ss", "netstat", "dig", "nslookup", "host", "xargs"),
    }
)
"""They change nothing, unless an option or a redirection says so."""
READING_WORDS = {
    "git": {"log", "status", "diff", "show", "branch", "rev-parse", "ls-files", "blame", "remote", "describe", "tag"},
    "pip": {"list", "show", "freeze", "index", "download", "--version"},
    "docker-compose": {"ps", "images", "logs", "config", "ls", "top", "version"},
    "docker": {"ps", "images", "logs", "inspect", "version", "info"},
    "kubectl": {"get", "describe", "logs", "top", "explain", "version"},
    "npm": {"ls", "list", "view", "outdated", "--version"},
    "cargo": {"tree", "metadata", "--version"},
    "go": {"list", "version", "env", "doc"},
    "systemctl": {"status", "is-active", "list-units", "show", "cat"},
    "helm": {"template", "list", "status", "lint"},
    "aws": {"s3", "ec2"},
}
REPEATABLE = frozenset({"cd", "pushd", "export", "source", ".", "set", "alias", "unset", "ulimit", "shopt", "umask"})
"""Done twice they leave what they leave when done once. So do these with a word after them:"""
REPEATABLE_WORDS = {
    "mkdir": {"-p", "-pv", "--parents"},
    "pip": {"install"},
    "pip3": {"install"},
    "npm": {"install", "ci", "i"},
    "git": {"fetch", "add", "init", "config"},
    "conda": {"activate"},
    "module": {"load"},
    "uv": {"sync", "venv"},
}
MOVES = frozenset({"cd", "pushd"})
CHANGING_OPTIONS = {
    "sed": re.compile(r"^(?:-[nEr]*i|--in-place)"),
    "find": re.compile(r"^-(?:delete|exec|execdir|ok)$"),
    "awk": re.compile(r"inplace"),
    "sort": re.compile(r"^-o"),
    "git": re.compile(r"^-[dDmM]$|^--delete$|^add$|^remove$"),
    "xargs": re.compile(r"^(?:rm|mv|cp|chmod|chown|kill|git|docker|sh|bash|sed|touch|mkdir)$"),
    "aws": re.compile(r"^(?:cp|mv|rm|sync|mb|rb|run-instances|terminate-instances)$"),
}
ALL_OR_NOTHING = frozenset(
    {
        *(
            "pip",
            "pip3",
            "npm",
            "yarn",
            "pnpm",
            "apt",
            "apt-get",
            "brew",
            "conda",
            "mamba",
            "cargo",
            "go",
            "gem",
            "gcc",
        ),
        *(
            "g++",
            "clang",
            "cc",
            "javac",
            "git",
            "kubectl",
            "docker",
            "docker-compose",
            "terraform",
            "helm",
            "make",
            "cmake",
            "systemctl",
        ),
        *("curl", "wget", "ssh", "scp", "rsync", "unzip", "tar", "uv", "poetry", "psql", "sqlite3", "sed", "ffmpeg"),
    }
)
"""If one of the things that they are to work on isn't there, they do nothing at all."""
CHECKERS = frozenset(
    {
        *("pytest", "tox", "nox", "unittest", "jest", "vitest", "mocha", "rspec", "phpunit", "ctest", "gotestsum"),
        *("mypy", "pyright", "ruff", "flake8", "pylint", "eslint", "tsc", "black", "isort", "shellcheck", "hadolint"),
        *("pre-commit", "golangci-lint", "clippy", "rubocop", "prettier", "stylelint", "yamllint", "markdownlint"),
        *("grep", "egrep", "fgrep", "rg", "ag", "diff", "cmp", "comm", "test", "[", "[[", "ping", "nc", "curl", "wget"),
        *("pgrep", "systemctl", "pg_isready", "nslookup", "dig", "which", "cargo", "go", "make", "cmake", "gcc", "g++"),
        *("clang", "javac", "mvn", "gradle", "gradlew", "npm", "yarn", "pnpm", "python", "python3", "node", "ruby"),
        *(
            "terraform",
            "ansible-playbook",
            "docker",
            "docker-compose",
            "helm",
            "rustc",
            "ninja",
            "bazel",
            "dotnet",
            "pip-audit",
        ),
    }
)
"""Programs whose exit code is about what they looked at or built. Of these a failure is a finding, unless the program
says that it was called wrongly."""
WANTED_OPTIONS = {
    "grep": {"-r", "-R"},
    "mkdir": {"-p"},
    "cp": {"-r", "-R", "-a"},
    "pip": {"-r"},
    "scp": {"-r"},
}
"""Options that a program stops without, and doesn't name."""
EXISTENCE = frozenset({"ls", "test", "[", "[[", "which", "stat", "file", "type", "locate"})
"""Programs that people ask whether something is there: that it isn't is an answer."""
BYPASS = re.compile(
    r"""(?:^|\s)(?:
        sudo | doas | su\ -c | --no-verify | --force(?:-with-lease|-yes|-reinstall)? | --skip\S* | -DskipTests
      | --no-check\S* | --insecure | -k(?=\s+https?) | -\w*k\w*(?=\s+https?) | --allow-\S+ | --ignore-\S+
      | --break-system-packages | --legacy-peer-deps | --no-deps | --user | chmod\ (?:-R\ )?(?:0?777|a\+rwx|-R)
      | set\ \+e | setenforce | --privileged | --dangerously\S* | --yes-i-really\S* | --assume-yes | --trusted-host
      | --no-gpg-sign | --no-strict\S* | --exit-zero | --deselect | --exclude(?:-\S+)? | -k\ ['"]?not | --noconftest
      | --no-cov | --passWithNoTests | --disable-\S+ | --unsafe\S* | -W\ ignore | --quiet-failures | --hard
      | --as(?:=|\ ) | --validate=false | -lock=false | --profile(?:=|\ )\S*admin | -o\ StrictHostKeyChecking
      | --no-edit-check | --overwrite | --yes | --prune | --cascade | --no-preserve-root | --admin | --nodeps
    )
    | \|\|\s*(?:true\b|:(?=\s|$)|echo\b|exit\ 0) | (?:2|&)>\s*/dev/null | 2>&-
    | ;\s*(?:true|exit\ 0)\s*$""",
    re.VERBOSE,
)
FORCED = re.compile(
    r"""\b(?:
        (?:rm|mv|cp|ln|umount|gzip|unzip|rmi)\ (?:\S+\ )*?-\w*f\w*
      | git\ (?:push|rm|clean|checkout|branch|add|tag|switch)\ (?:\S+\ )*?-\w*f\b
      | (?:docker|podman)\ (?:container\ )?(?:rm|rmi|image\ rm|volume\ rm)\ (?:\S+\ )*?-\w*f\b
      | git\ commit\ (?:\S+\ )*?-n\b
      | git\ branch\ (?:\S+\ )*?-D\b | pkill | killall | fuser\ -k | ffmpeg\ (?:\S+\ )*?-y\b | unzip\ -o
    )""",
    re.VERBOSE,
)
"""Short options that force something, which elsewhere name a file (`docker compose -f`)."""
INLINE = {"python": "-c", "python3": "-c", "node": "-e", "ruby": "-e", "perl": "-e", "bash": "-c", "sh": "-c"}
LANGUAGES = frozenset({"awk", "sed", "jq", "grep", "egrep", "rg", "perl", "yq", "node", "ruby", "xargs", "find"})
"""Programs that have one of their own among the words: there a slip may be anywhere."""
DATABASES = frozenset({"psql", "sqlite3", "duckdb", "mysql", "bq"})
OUTWARD_WORDS = re.compile(
    r"\b(?:write|append|exec|spawn|system|unlink|rm|post|put|delete|save|mkdir|rename|kill)\w*", re.I
)
"""Words of an inline program that may change something."""
