"""Names in code that nothing can provide: each is a warning, so that no gate opens in silence.

    outputs.NAME, outputs['NAME'], steps.NAME ...   NAME must be a step that the code can see
    metadata.NAME, event.NAME                       NAME must be a field that exists
    NAME                                            must be a variable or a helper, or be declared in the code

The code is only read word by word, so names that it computes are not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from resile.dialects.reading.diagnostics import did_you_mean


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SKIPPED = r"""/\*.*?\*/|//[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`"""
_REGEX = r"""(?:\A|(?<=[(,=:&|!?{;\n])|(?<=\breturn))\s*/(?![*/])(?:\\.|\[[^\]\n]*\]|[^/\\\n])+/[a-z]*"""
_NAME = r"[A-Za-z_$][\w$]*"
_OF_STEPS = re.compile(
    rf"""\b(outputs_history|outputs_raw|outputs|steps)(?:\??\.({_NAME})|(?:\?\.)?\[\s*(?:'([^'\n]*)'|"([^"\n]*)")\s*\])"""
)
_OF_FIELDS = re.compile(rf"\bmetadata\??\.({_NAME})")
_WORD = re.compile(rf"(\.\s*)?(?<![\w$])({_NAME})(\s*:(?!:))?")
_PARAMETERS = re.compile(rf"\(([^()]*)\)\s*=>|({_NAME})\s*=>|function\s*{_NAME}?\s*\(([^()]*)\)|catch\s*\(([^()]*)\)")
_DECLARED = re.compile(rf"\b(?:const|let|var|function|class)\s+(?:({_NAME})|([\[{{][^=]*?[\]}}])\s*=|({_NAME}))")
_LANGUAGE = _words(
    """async await break case catch class const continue default delete do else false finally for function if in
    instanceof let new null of return static super switch this throw true try typeof undefined var void while yield
    Object Array String Number Boolean RegExp Map Set Math JSON Symbol Date parseInt parseFloat isNaN isFinite Infinity
    NaN Error EvalError RangeError ReferenceError SyntaxError TypeError URIError"""
)
VISOR_NAMES = _words(
    """step attempt loop error foreach forEach item output outputs outputs_raw outputs_history env inputs event pr files
    args steps checkName branch baseBranch filesChanged filesCount fileCount debug memory log console issues metadata
    schema group criticalIssues errorIssues warningIssues infoIssues totalIssues contains startsWith endsWith length
    always success failure any all none count hasIssueWith hasIssue countIssues hasFileMatching hasFileWith
    hasMinPermission isOwner isMember isCollaborator isContributor isFirstTimer"""
)
NATIVE_NAMES = _words(
    """step attempt loop error foreach item output outputs outputs_raw outputs_history env inputs event pr files $v"""
)
_MEANT = {"steps": "`outputs.NAME` is the output of the step NAME, as is `${steps.NAME.output}`"}
"""Names of texts, each with what it is called in code."""
FILTER_NAMES = frozenset(("item",))
_METADATA = ("checkName", "schema", "group", "criticalIssues", "errorIssues", "warningIssues", "infoIssues",
             "totalIssues", "event", "branch", "baseBranch", "filesChanged", "filesCount", "hasChanges")  # fmt: skip
_ANY_OBJECT = ("history", "hasOwnProperty", "toString", "constructor")


def unknown_names(code: str, steps: frozenset[str], variables: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The names in code that nothing provides, each with a hint; `steps` and `variables` are what it can see."""
    plain = re.sub(_SKIPPED, lambda found: "''" if found[0][0] in "'\"`" else " ", code, flags=re.DOTALL)
    plain = re.sub(_REGEX, " 0 ", plain)
    seen: set[str] = set()
    for found in _OF_STEPS.finditer(re.sub(r"/\*.*?\*/|//[^\n]*", " ", code, flags=re.DOTALL)):
        name = found[2] or found[3] or found[4]
        # Where the code sees no such variable, the variable itself is what is unknown.
        known = name in steps or name.removesuffix("-raw") in steps or name in _ANY_OBJECT or found[1] not in variables
        if name and not known and name not in seen:
            seen.add(name)
            yield f"{found[1]}.{name}", did_you_mean(name, steps, "steps")
    for found in _OF_FIELDS.finditer(plain):
        if found[1] not in _METADATA:
            yield f"metadata.{found[1]}", did_you_mean(found[1], _METADATA, "its fields")
    declared = _declared_in(plain)
    for found in _WORD.finditer(plain):
        name = found[2]
        if found[1] or found[3] or name in seen or name in _LANGUAGE or name in variables or name in declared:
            continue
        seen.add(name)
        meant = _MEANT.get(name, "") if "outputs" in variables else ""
        yield name, meant or did_you_mean(name, variables)


def _declared_in(code: str) -> set[str]:
    """The names that code declares itself: variables, functions and parameters."""
    parts = [part for found in _PARAMETERS.finditer(code) for part in found.groups() if part]
    parts += [part for found in _DECLARED.finditer(code) for part in found.groups() if part]
    declared = {name for part in parts for name in re.findall(_NAME, part)}
    return declared | set(re.findall(rf",\s*({_NAME})\s*=(?!=)", code))
