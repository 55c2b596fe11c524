"""Values that try to run `touch CANARY`, to leave their quotes, or to become several words."""

# ruff: noqa: E501 - a table reads better with few lines
from __future__ import annotations

CANARY = "CANARY"
TOUCH = f"touch {CANARY}"

PAYLOADS = (
    # harmless, but easily changed: nothing, blanks, line ends, patterns, options, numbers
    "", "plain", "two words", " a  b ", "a\nb\n", "\t", "*", "?[a-z]*", "~", "~root/x", "-n", "-e \\n\\c", "!!", "5", "-7",
    "{a,b}{1..3}", "%s%d%n\\x41", "a=b", "é☃🎉", "\x02\x1b", "\udcc3", "\udc81\udc83\udcff",
    # out of quotes, comments, groups, case branches, here-documents, and lines
    f"$({TOUCH})", f"`{TOUCH}`", f"';{TOUCH};'", f'";{TOUCH};"', f"\\';{TOUCH};\\\"", f"\n{TOUCH}\n", f"\\\n{TOUCH}",
    f"; {TOUCH} #", f"& {TOUCH} &", f"|{TOUCH}", f")\n{TOUCH}\n(", f"}};{TOUCH};{{", f"x);; esac; {TOUCH}; case x in",
    f"EOF\n{TOUCH}\nEOF\n", f"\nEOF\n{TOUCH}\n", f"' \" ` \\ $ \n{TOUCH}", f"\udcc3';{TOUCH};'", f"\r{TOUCH}\r\n", f"]] && {TOUCH}",
    f"-W$({TOUCH})", f"fi; {TOUCH}", f">{CANARY}", f"<({TOUCH})",
    # places that are evaluated a second time: arithmetic, subscripts, names, lists, prompts, options, glob qualifiers
    f"a[$({TOUCH})]", f"PATH[$({TOUCH})]", f"x[$({TOUCH})]=1", f"1+a[`{TOUCH}`]", f"($({TOUCH}))", f"([0]=$({TOUCH}))",
    f"-va[$({TOUCH})]", f"${{ {TOUCH}; }}", f"-Aa[$({TOUCH})]", f"$((PATH[$({TOUCH})]))", f"*(e:'{TOUCH}':)",
    f"/e;1e {TOUCH}\n",
)  # fmt: skip
