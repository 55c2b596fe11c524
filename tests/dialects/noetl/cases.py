"""One case for each key of a playbook: what is written with it and what without; test_noetl_keys compares."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

PY = 'kind: python, code: "def main(): return 1"'
SH = "kind: shell, cmds: ['true']"
START = "{step: start, tool: {" + SH + "}"
# fmt: off
# Where a key of each table stands: the playbook around it. %s is where the key is written.
AROUND: dict[str, str] = {
    "a playbook": "{%s, workflow: [" + START + "}]}",
    "metadata": "{metadata: {%s}, workflow: [" + START + "}]}",
    "executor": "{executor: {%s}, workflow: [{step: a, tool: {" + SH + "}}, {step: b, tool: {" + SH + "}}]}",
    "spec of the executor": "{executor: {spec: {%s}}, workflow: [{step: a, tool: {"
    + SH
    + "}}, {step: b, tool: {"
    + SH
    + "}}]}",
    "an entry of the keychain": "{keychain: [{%s}], workflow: [" + START + "}]}",
    "an entry of the workbook": "{workbook: [{%s}], workflow: [{step: start, tool: {kind: workbook, name: w}}]}",
    "a step": "{workflow: [{step: start, %s}, {step: a, tool: {" + SH + "}}]}",
    "loop": "{workflow: [{step: start, tool: {" + PY + "}, loop: {%s}}]}",
    "spec of a loop": "{workflow: [{step: start, tool: {"
    + PY
    + "}, loop: {in: '{{ [1] }}', iterator: i, spec: {%s}}}]}",
    "policy of a loop": "{workflow: [{step: start, tool: {"
    + PY
    + "}, loop: {in: '{{ [1] }}', iterator: i, spec: {policy: {%s}}}}]}",
    "the task of an iterator": "{workflow: [{step: start, tool: {kind: iterator, in: '{{ [1] }}', element: i, task: {%s}}}]}",
    "per_iteration": "{workflow: [" + START + ", retry: [{when: x, then: {next_call: {url: u}, per_iteration: {%s}}}]}]}",
    "spec of a step": "{workflow: [" + START + ", spec: {%s}}]}",
    "policy of a step": "{workflow: [" + START + ", spec: {policy: {%s}}}]}",
    "admit": "{workflow: [" + START + ", spec: {policy: {admit: {%s}}}}]}",
    "a rule of `admit`": "{workflow: [" + START + ", spec: {policy: {admit: {rules: [{%s}]}}}}]}",
    "else of `admit`": "{workflow: [" + START + ", spec: {policy: {admit: {rules: [{else: {%s}}]}}}}]}",
    "then of `admit`": "{workflow: [" + START + ", spec: {policy: {admit: {rules: [{when: x, then: {%s}}]}}}}]}",
    "spec of a tool": "{workflow: [{step: start, tool: {" + SH + ", spec: {%s}}}]}",
    "policy of a tool": "{workflow: [{step: start, tool: {" + SH + ", spec: {policy: {%s}}}}]}",
    "a rule of a tool": "{workflow: [{step: start, tool: {" + SH + ", spec: {policy: {rules: [{%s}]}}}}]}",
    "else of a tool": "{workflow: [{step: start, tool: {" + SH + ", spec: {policy: {rules: [{else: {%s}}]}}}}]}",
    "then of a tool": "{workflow: [{step: start, tool: [{a: {"
    + SH
    + ", spec: {policy: {rules: [{when: x, then: {%s}}]}}}}, {b: {"
    + SH
    + "}}]}]}",
    "auth of an http tool": "{workflow: [{step: start, tool: {kind: http, url: 'http://h', auth: {%s}}}]}",
    "a case": "{workflow: [" + START + ", case: [{%s}]}]}",
    "then": "{workflow: [" + START + ", case: [{when: 'true', then: {%s}}]}, {step: a, tool: {" + SH + "}}]}",
    "next": "{workflow: [" + START + ", next: {%s}}, {step: a, tool: {" + SH + "}}]}",
    "spec of next": "{workflow: ["
    + START
    + ", next: {arcs: [{step: a}, {step: b}], spec: {%s}}}, {step: a, tool: {"
    + SH
    + "}}, {step: b, tool: {"
    + SH
    + "}}]}",
    "an arc of `next`": "{workflow: [" + START + ", next: [{%s}]}, {step: a, tool: {" + SH + "}}]}",
    "collect": "{workflow: [" + START + ", case: [{when: 'true', then: {collect: {%s}}}]}]}",
    "sink": "{workflow: [" + START + ", sink: {%s}}]}",
    "retry": "{workflow: [" + START + ", retry: {%s}}]}",
    "a policy of `retry`": "{workflow: [" + START + ", retry: [{%s}]}]}",
    "next_call": "{workflow: [" + START + ", retry: [{when: 'true', then: {next_call: {%s}}}]}]}",
    "assert": "{workflow: [" + START + ", assert: {%s}}]}",
    "script": "{workflow: [{step: start, tool: {kind: python, script: {%s}}}]}",
    "source of a script": "{workflow: [{step: start, tool: {kind: python, script: {uri: f.py, source: {%s}}}}]}",
    "a python tool": "{workflow: [{step: start, tool: {kind: python, %s}}]}",
    "a shell tool": "{workflow: [{step: start, tool: {kind: shell, %s}}]}",
    "an http tool": "{workflow: [{step: start, tool: {kind: http, %s}}]}",
    "a postgres or duckdb tool": "{workflow: [{step: start, tool: {kind: duckdb, %s}}]}",
    "a playbook tool": "{workflow: [{step: start, tool: {kind: playbook, %s}}]}",
    "a workbook tool": "{workbook: [{name: w, tool: {"
    + PY
    + "}}, {name: v, tool: {"
    + SH
    + "}}], workflow: [{step: start, tool: {kind: workbook, %s}}]}",
    "an iterator tool": "{workflow: [{step: start, tool: {kind: iterator, %s}}]}",
    "a noop tool": "{workflow: [{step: start, tool: {%s}}]}",
}
# The keys that every tool has.
TOOL: dict[str, str] = {
    "args": "args: {a: 1}",
    "with": "with: {a: 1}",
    "input": "input: {a: 1}",
    "retry": "retry: 4",
    "timeout": "timeout: 5s",
    "loop": "loop: {in: '{{ [1] }}', iterator: i}",
    "assert": "assert: {returns: [x]}",
}


def _tool(base: str, more: dict[str, str | tuple[str, str]]) -> dict[str, str | tuple[str, str]]:
    """The cases of a tool: those of every tool beside what it needs, and its own."""
    common: dict[str, str | tuple[str, str]] = {key: (f"{base}, {text}", base) for key, text in TOOL.items()}
    return {**common, **more}


CODE = 'code: "def main(): return 1"'
ARCS = "arcs: [{step: a}]"
ROW = "tool: duckdb, table: t"
CASES: dict[str, dict[str, str | tuple[str, str]]] = {
    "a playbook": {
        "apiVersion": ("apiVersion: noetl.io/v3", "apiVersion: noetl.io/v2"),
        "kind": ("kind: Credential", "kind: Playbook"),
        "metadata": ("metadata: {name: n}", "metadata: {}"),
        "name": ("name: n", "kind: Playbook"),
        "path": ("path: p", "kind: Playbook"),
        "workload": ("workload: {a: 1}", "workload: {}"),
        "spec": ("spec: {a: 1}", "kind: Playbook"),
        "keychain": ("keychain: [{name: k, map: {f: x}}]", "keychain: []"),
        "workbook": ("workbook: [{name: w, tool: {kind: zzz}, zzz: 1}]", "workbook: []"),
        "workflow": ("{workflow: [{step: b, tool: {" + SH + "}}]}", "{workflow: [" + START + "}]}"),
        "executor": ("executor: {spec: {entry_step: zzz}}", "executor: {}"),
    },
    "metadata": {"name": ("name: n", "name: m"), "path": ("path: p", "path: q")},
    "executor": {"spec": ("spec: {entry_step: b}", "spec: {entry_step: a}")},
    "spec of the executor": {
        "entry_step": ("entry_step: b", "entry_step: a"),
        "final_step": ("final_step: b", "final_step: end"),
        "no_next_is_error": ("no_next_is_error: true", "no_next_is_error: false"),
    },
    "an entry of the keychain": {"name": ("name: k, map: {f: x}", "name: j, map: {f: x}"), "map": ("name: k, map: {f: x}", "name: k")},
    "an entry of the workbook": {
        "name": ("name: v, tool: {" + PY + "}", "name: w, tool: {" + PY + "}"),
        "tool": ("name: w, tool: {" + PY + "}", "name: w, tool: {" + SH + "}"),
        "type": ("name: w, type: noop", "name: w, tool: {" + SH + "}"),
        "assert": ("name: w, tool: {" + PY + "}, assert: {returns: [a]}", "name: w, tool: {" + PY + "}"),
        "sink": ("name: w, tool: {" + PY + "}, sink: {tool: http, url: 'http://h'}", "name: w, tool: {" + PY + "}"),
    },
    "a step": {
        "step": ("{workflow: [{step: b, tool: {" + SH + "}}]}", "{workflow: [" + START + "}]}"),
        "tool": ("tool: {" + PY + "}", "tool: {" + SH + "}"),
        "type": ("type: noop", "tool: {" + SH + "}"),
        "args": ("tool: {" + SH + "}, args: {a: 1}", "tool: {" + SH + "}"),
        "with": ("tool: {" + SH + "}, with: {a: 1}", "tool: {" + SH + "}"),
        "input": ("tool: {" + SH + "}, input: {a: 1}", "tool: {" + SH + "}"),
        "loop": ("tool: {" + SH + "}, loop: {in: '{{ [1] }}', iterator: i}", "tool: {" + SH + "}"),
        "case": ("tool: {" + SH + "}, case: [{when: 'true', then: {next: a}}]", "tool: {" + SH + "}"),
        "next": ("tool: {" + SH + "}, next: a", "tool: {" + SH + "}"),
        "vars": ("tool: {" + SH + "}, vars: {a: 1}", "tool: {" + SH + "}"),
        "set": ("tool: {" + SH + "}, set: {ctx.a: 1}", "tool: {" + SH + "}"),
        "retry": ("tool: {" + SH + "}, retry: true", "tool: {" + SH + "}"),
        "sink": ("tool: {" + SH + "}, sink: {tool: http, url: 'http://h'}", "tool: {" + SH + "}"),
        "save": ("tool: {" + SH + "}, save: {tool: http, url: 'http://h'}", "tool: {" + SH + "}"),
        "assert": ("tool: {" + SH + "}, assert: {expects: [a]}", "tool: {" + SH + "}"),
        "timeout": ("tool: {" + SH + "}, timeout: 5", "tool: {" + SH + "}"),
        "critical": ("tool: {" + SH + "}, critical: true", "tool: {" + SH + "}"),
        "pass": ("tool: {" + SH + "}, pass: true", "tool: {" + SH + "}"),
        "spec": ("tool: {" + SH + "}, spec: {policy: {admit: {rules: [{when: x, then: {allow: true}}]}}}", "tool: {" + SH + "}"),
    },
    "loop": {
        "in": ("in: '{{ [1] }}', iterator: i", "in: '{{ [2] }}', iterator: i"),
        "collection": ("collection: [1], iterator: i", "in: '{{ [2] }}', iterator: i"),
        "iterator": ("in: '{{ [1] }}', iterator: i", "in: '{{ [1] }}', iterator: j"),
        "element": ("in: '{{ [1] }}', element: i", "in: '{{ [1] }}', iterator: j"),
        "mode": ("in: '{{ [1] }}', iterator: i, mode: async", "in: '{{ [1] }}', iterator: i"),
        "concurrency": ("in: '{{ [1] }}', iterator: i, mode: async, concurrency: 3", "in: '{{ [1] }}', iterator: i, mode: async"),
        "limit": ("in: '{{ [1] }}', iterator: i, limit: 3", "in: '{{ [1] }}', iterator: i"),
        "where": ("in: '{{ [1] }}', iterator: i, where: i > 0", "in: '{{ [1] }}', iterator: i"),
        "order_by": ("in: '{{ [1] }}', iterator: i, order_by: i", "in: '{{ [1] }}', iterator: i"),
        "chunk": ("in: '{{ [1] }}', iterator: i, chunk: 2", "in: '{{ [1] }}', iterator: i"),
        "spec": ("in: '{{ [1] }}', iterator: i, spec: {mode: parallel}", "in: '{{ [1] }}', iterator: i"),
    },
    "spec of a loop": {
        "mode": ("mode: parallel", "mode: sequential"),
        "max_in_flight": ("mode: parallel, max_in_flight: 2", "mode: parallel"),
        "policy": ("policy: {failure: x}", "policy: {exec: local}"),
    },
    "policy of a loop": {},
    "the task of an iterator": {
        "tool": ("tool: {" + SH + "}", "tool: {" + PY + "}"),
        "type": ("type: noop", "tool: {" + PY + "}"),
        "args": ("tool: {" + PY + "}, args: {a: 1}", "tool: {" + PY + "}"),
        "with": ("tool: {" + PY + "}, with: {a: 1}", "tool: {" + PY + "}"),
        "input": ("tool: {" + PY + "}, input: {a: 1}", "tool: {" + PY + "}"),
        "sink": ("tool: {" + PY + "}, sink: {tool: http, url: 'http://h'}", "tool: {" + PY + "}"),
        "save": ("tool: {" + PY + "}, save: {tool: http, url: 'http://h'}", "tool: {" + PY + "}"),
        "assert": ("tool: {" + PY + "}, assert: {returns: [x]}", "tool: {" + PY + "}"),
        "retry": ("tool: {" + PY + "}, retry: 4", "tool: {" + PY + "}"),
        "timeout": ("tool: {" + PY + "}, timeout: 5s", "tool: {" + PY + "}"),
    },
    "per_iteration": {"sink": ("sink: {tool: http, url: 'http://h'}", "sink: {tool: event_log}")},
    "spec of a step": {"policy": ("policy: {admit: {rules: [{when: x, then: {allow: true}}]}}", "policy: {}")},
    "policy of a step": {"admit": ("admit: {rules: [{when: x, then: {allow: true}}]}", "")},
    "admit": {
        "rules": ("rules: [{when: x, then: {allow: true}}]", "rules: [{when: x, then: {allow: false}}]"),
        "mode": ("rules: [{when: x, then: {allow: true}}], mode: inclusive", "rules: [{when: x, then: {allow: true}}]"),
    },
    "a rule of `admit`": {
        "when": ("when: x, then: {allow: true}", "when: y, then: {allow: true}"),
        "then": ("when: x, then: {allow: true}", "when: x, then: {allow: false}"),
        "else": ("else: {then: {allow: true}}", "when: x, then: {allow: true}"),
    },
    "else of `admit`": {"then": ("then: {allow: true}", "then: {allow: false}")},
    "then of `admit`": {"allow": ("allow: true", "allow: false")},
    "spec of a tool": {"policy": ("policy: {rules: [{when: x, then: {do: fail}}]}", "")},
    "policy of a tool": {
        "rules": ("rules: [{when: x, then: {do: fail}}]", "rules: []"),
        "mode": ("rules: [], mode: inclusive", "rules: []"),
        "on_unmatched": ("rules: [], on_unmatched: continue", "rules: []"),
    },
    "a rule of a tool": {
        "when": ("when: x, then: {do: fail}", "when: y, then: {do: fail}"),
        "then": ("when: x, then: {do: fail}", "when: x, then: {do: break}"),
        "else": ("else: {then: {do: fail}}", "when: x, then: {do: fail}"),
    },
    "else of a tool": {"then": ("then: {do: fail}", "then: {do: break}")},
    "then of a tool": {
        "do": ("do: fail", "do: continue"),
        "to": ("do: jump, to: a", "do: jump, to: b"),
        "attempts": ("do: retry, attempts: 5", "do: retry"),
        "backoff": ("do: retry, backoff: none", "do: retry"),
        "delay": ("do: retry, delay: 4", "do: retry"),
        "set_ctx": ("do: continue, set_ctx: {a: 1}", "do: continue"),
        "set_iter": ("do: continue, set_iter: {a: 1}", "do: continue"),
    },
    "auth of an http tool": {
        "type": ("type: api_key, name: n", "name: n"),
        "name": ("name: n", "name: m"),
        "credential": ("credential: n", "name: m"),
        "token": ("token: n", "token: m"),
        "username": ("type: basic, username: u, password: p", "type: basic, username: v, password: p"),
        "password": ("type: basic, username: u, password: p", "type: basic, username: u, password: q"),
        "key": ("type: api_key, key: k", "type: api_key, key: l"),
        "header": ("type: api_key, key: k, header: H", "type: api_key, key: k"),
    },
    "a case": {"when": ("when: a, then: {fail: x}", "when: b, then: {fail: x}"), "then": ("when: a, then: {fail: x}", "when: a, then: {fail: y}")},
    "then": {
        "next": ("next: a", "set: {v: 1}"),
        "step": ("step: a", "set: {v: 1}"),
        "args": ("step: a, args: {x: 1}", "step: a"),
        "call": ("call: {step: a}", "set: {v: 1}"),
        "set": ("set: {v: 1}", "set: {v: 2}"),
        "collect": ("collect: {into: v}", "set: {v: 1}"),
        "result": ("result: {from: response}", "set: {v: 1}"),
        "sink": ("sink: {tool: http, url: 'http://h'}", "set: {v: 1}"),
        "retry": ("retry: {max_attempts: 2}", "set: {v: 1}"),
        "fail": ("fail: x", "set: {v: 1}"),
    },
    "next": {
        "spec": (ARCS + ", spec: {mode: zzz}", ARCS),
        "arcs": (ARCS, "arcs: []"),
        "step": ("step: a", "arcs: []"),
        "when": ("step: a, when: x", "step: a"),
        "then": ("when: x, then: [a]", "arcs: []"),
        "else": ("else: [a]", "arcs: []"),
        "args": ("step: a, args: {x: 1}", "step: a"),
        "with": ("step: a, with: {x: 1}", "step: a"),
        "data": ("step: a, data: {x: 1}", "step: a"),
        "input": ("step: a, input: {x: 1}", "step: a"),
    },
    "spec of next": {"mode": ("mode: inclusive", "mode: exclusive")},
    "an arc of `next`": {
        "step": ("step: a", "step: end"),
        "when": ("step: a, when: x", "step: a"),
        "then": ("when: x, then: [a]", "when: x, then: [end]"),
        "else": ("else: [a]", "else: [end]"),
        "args": ("step: a, args: {x: 1}", "step: a"),
        "with": ("step: a, with: {x: 1}", "step: a"),
        "data": ("step: a, data: {x: 1}", "step: a"),
        "input": ("step: a, input: {x: 1}", "step: a"),
        "set": ("step: a, set: {x: 1}", "step: a"),
    },
    "collect": {
        "from": ("into: v, from: result.x", "into: v"),
        "data": ("into: v, data: 1", "into: v"),
        "into": ("into: v", "into: w"),
        "mode": ("into: v, mode: extend", "into: v"),
        "strategy": ("into: v, strategy: merge", "into: v"),
        "path": ("into: v, path: x", "into: v"),
    },
    "sink": {
        "tool": ("tool: http, url: 'http://h'", "tool: event_log"),
        "storage": ("storage: http, url: 'http://h'", "tool: event_log"),
        "backend": ("backend: http, url: 'http://h'", "tool: event_log"),
        "table": (ROW, "tool: duckdb, table: u"),
        "mode": (ROW + ", mode: upsert, key: id", ROW + ", mode: append"),
        "key": (ROW + ", mode: upsert, key: [a, b]", ROW + ", mode: upsert, key: a"),
        "args": (ROW + ", args: {a: 1}", ROW),
        "data": (ROW + ", data: '{{ result.rows }}'", ROW),
        "mapping": (ROW + ", mapping: {a: b}", ROW),
        "statement": ("tool: duckdb, statement: select 1", ROW),
        "command": ("tool: duckdb, command: select 1", ROW),
        "commands": ("tool: duckdb, commands: select 1", ROW),
        "query": ("tool: duckdb, query: select 1", ROW),
        "auth": (ROW + ", auth: a", ROW),
        "database": (ROW + ", database: d", ROW),
        "url": ("tool: http, url: 'http://h'", "tool: http, url: 'http://i'"),
        "endpoint": ("tool: http, endpoint: 'http://h'", "tool: http, url: 'http://i'"),
        "method": ("tool: http, url: 'http://h', method: PUT", "tool: http, url: 'http://h'"),
        "headers": ("tool: http, url: 'http://h', headers: {A: b}", "tool: http, url: 'http://h'"),
        "params": ("tool: http, url: 'http://h', params: {a: 1}", "tool: http, url: 'http://h'"),
        "payload": ("tool: http, url: 'http://h', payload: {a: 1}", "tool: http, url: 'http://h'"),
        "code": ('tool: python, code: "def main(data): pass"', 'tool: python, code: "def main(result): pass"'),
        "when": (ROW + ", when: x", ROW),
    },
    "retry": {
        "max_attempts": ("max_attempts: 5", "max_attempts: 4"),
        "initial_delay": ("initial_delay: 3", "max_attempts: 3"),
        "delay": ("delay: 3", "max_attempts: 3"),
        "max_delay": ("max_delay: 3", "max_attempts: 3"),
        "backoff_multiplier": ("backoff_multiplier: 3", "max_attempts: 3"),
        "backoff": ("backoff: linear", "max_attempts: 3"),
        "jitter": ("jitter: false", "max_attempts: 3"),
        "retry_when": ("retry_when: x", "max_attempts: 3"),
        "stop_when": ("stop_when: x", "max_attempts: 3"),
        "retry_on": ("retry_on: [timeout]", "max_attempts: 3"),
        "params": ("{workflow: [" + START + ", case: [{when: x, then: {retry: {params: {a: 1}}}}]}]}", "{workflow: [" + START + ", case: [{when: x, then: {retry: {}}}]}]}"),
        "next_call": ("{workflow: [" + START + ", retry: [{when: x, then: {next_call: {url: u}}}]}]}", "{workflow: [" + START + ", retry: [{when: x, then: {}}]}]}"),
        "collect": ("{workflow: [" + START + ", retry: [{when: x, then: {collect: {into: v}}}]}]}", "{workflow: [" + START + ", retry: [{when: x, then: {}}]}]}"),
        "sink": ("{workflow: [" + START + ", retry: [{when: x, then: {sink: {tool: http, url: 'http://h'}}}]}]}", "{workflow: [" + START + ", retry: [{when: x, then: {}}]}]}"),
        "per_iteration": (
            "{workflow: [" + START + ", retry: [{when: x, then: {per_iteration: {sink: {tool: http, url: 'http://h'}}}}]}]}",
            "{workflow: [" + START + ", retry: [{when: x, then: {}}]}]}",
        ),
    },
    "a policy of `retry`": {"when": ("when: x, then: {}", "when: y, then: {}"), "then": ("when: x, then: {max_attempts: 4}", "when: x, then: {}")},
    "next_call": {
        "url": ("url: u", "args: {}"),
        "params": ("params: {a: 1}", "args: {}"),
        "headers": ("headers: {a: 1}", "args: {}"),
        "args": ("args: {a: 1}", "url: u"),
        "payload": ("payload: {a: 1}", "args: {}"),
    },
    "assert": {"expects": ("expects: [a]", "returns: [a]"), "returns": ("returns: [a]", "returns: [b]")},
    "script": {
        "uri": ("uri: f.py", "uri: g.py"),
        "source": ("uri: f.py, source: {type: inline, code: 'result = 1'}", "uri: f.py"),
    },
    "source of a script": {"type": ("type: gcs", "type: file"), "code": ("type: inline, code: 'result = 1'", "type: inline, code: 'result = 2'")},
    "a python tool": _tool(CODE, {
        "kind": ("{workflow: [{step: start, tool: {kind: python, code: 'result = 1'}}]}", "{workflow: [" + START + "}]}"),
        "code": (CODE, 'code: "def main(): return 2"'),
        "code_b64": ("code_b64: cmVzdWx0ID0gMQ==", CODE),
        "code_base64": ("code_base64: cmVzdWx0ID0gMQ==", CODE),
        "script": ("script: {uri: f.py}", CODE),
        "result_status": (CODE + ", result_status: ignore", CODE),
        **{word: (f"{CODE}, {word}: {{a: 1}}", CODE) for word in ("data", "params", "payload")},
    }),
    "a shell tool": _tool("cmds: ['true']", {
        "kind": ("{workflow: [" + START + "}]}", "{workflow: [{step: start, tool: {kind: noop}}]}"),
        "cmds": ("cmds: [a, b]", "cmds: [a]"),
        "command": ("command: b", "cmds: [a]"),
        "cmd": ("cmd: b", "cmds: [a]"),
        "commands": ("commands: [b]", "cmds: [a]"),
        "env": ("cmds: [a], env: {A: 1}", "cmds: [a]"),
        "cwd": ("cmds: [a], cwd: d", "cmds: [a]"),
        "working_dir": ("cmds: [a], working_dir: d", "cmds: [a]"),
    }),
    "an http tool": _tool("url: 'http://h'", {
        "kind": ("{workflow: [{step: start, tool: {kind: http, url: 'http://h'}}]}", "{workflow: [" + START + "}]}"),
        "method": ("url: 'http://h', method: put", "url: 'http://h'"),
        "url": ("url: 'http://h'", "url: 'http://i'"),
        "endpoint": ("endpoint: 'http://h'", "url: 'http://i'"),
        "headers": ("url: 'http://h', headers: {A: b}", "url: 'http://h'"),
        "params": ("url: 'http://h', params: {a: 1}", "url: 'http://h'"),
        "auth": ("url: 'http://h', auth: name", "url: 'http://h'"),
        "payload": ("url: 'http://h', payload: {a: 1}", "url: 'http://h'"),
        "data": ("url: 'http://h', data: text", "url: 'http://h'"),
        "body": ("url: 'http://h', body: [1]", "url: 'http://h'"),
        "json": ("url: 'http://h', json: '{{ x }}'", "url: 'http://h'"),
        "verify_ssl": ("url: 'http://h', verify_ssl: false", "url: 'http://h'"),
    }),
    "a postgres or duckdb tool": _tool("command: select 1", {
        "kind": ("{workflow: [{step: start, tool: {kind: postgres, command: select 1}}]}", "{workflow: [{step: start, tool: {kind: duckdb, command: select 1}}]}"),
        "command": ("command: select 2", "command: select 1"),
        "commands": ("commands: [select 2, select 3]", "command: select 1"),
        "query": ("query: select 2", "command: select 1"),
        "statement": ("statement: select 2", "command: select 1"),
        "sql": ("sql: select 2", "command: select 1"),
        "script": ("script: {uri: f.sql}", "command: select 1"),
        "auth": ("command: select 1, auth: a", "command: select 1"),
        "database": ("command: select 1, database: d", "command: select 1"),
        "params": ("command: select 1, params: [1]", "command: select 1"),
    }),
    "a playbook tool": _tool("path: kid.yaml", {
        "kind": ("{workflow: [{step: start, tool: {kind: playbook, path: kid.yaml}}]}", "{workflow: [" + START + "}]}"),
        "path": ("path: kid.yaml", "path: kids/other"),
        **{word: (f"path: kid.yaml, {word}: {{a: 1}}", "path: kid.yaml") for word in ("data", "params", "payload")},
        "return_step": ("path: kid.yaml, return_step: start", "path: kid.yaml"),
    }),
    "a workbook tool": _tool("name: w", {
        "kind": ("{workbook: [{name: w, tool: {" + PY + "}}], workflow: [{step: start, tool: {kind: workbook, name: w}}]}", "{workflow: [" + START + "}]}"),
        "name": ("name: w", "name: v"),
        "task": ("task: w", "name: v"),
        **{word: (f"name: w, {word}: {{a: 1}}", "name: w") for word in ("data", "params", "payload")},
    }),
    "an iterator tool": _tool("in: '{{ [1] }}', element: i, task: {" + PY + "}", {
        "kind": ("{workflow: [{step: start, tool: {kind: iterator, in: '{{ [1] }}', element: i, task: {" + PY + "}}}]}", "{workflow: [" + START + "}]}"),
        "collection": ("collection: '{{ [2] }}', element: i, task: {" + PY + "}", "in: '{{ [1] }}', element: i, task: {" + PY + "}"),
        "in": ("in: '{{ [2] }}', element: i, task: {" + PY + "}", "in: '{{ [1] }}', element: i, task: {" + PY + "}"),
        "element": ("in: '{{ [1] }}', element: j, task: {" + PY + "}", "in: '{{ [1] }}', element: i, task: {" + PY + "}"),
        "iterator": ("in: '{{ [1] }}', iterator: j, task: {" + PY + "}", "in: '{{ [1] }}', element: i, task: {" + PY + "}"),
        "mode": ("in: '{{ [1] }}', element: i, mode: async, task: {" + PY + "}", "in: '{{ [1] }}', element: i, task: {" + PY + "}"),
        "concurrency": ("in: '{{ [1] }}', element: i, mode: async, concurrency: 2, task: {" + PY + "}", "in: '{{ [1] }}', element: i, mode: async, task: {" + PY + "}"),
        "limit": ("in: '{{ [1] }}', element: i, limit: 2, task: {" + PY + "}", "in: '{{ [1] }}', element: i, task: {" + PY + "}"),
        "where": ("in: '{{ [1] }}', element: i, where: i, task: {" + PY + "}", "in: '{{ [1] }}', element: i, task: {" + PY + "}"),
        "order_by": ("in: '{{ [1] }}', element: i, order_by: i, task: {" + PY + "}", "in: '{{ [1] }}', element: i, task: {" + PY + "}"),
        "chunk": ("in: '{{ [1] }}', element: i, chunk: 2, task: {" + PY + "}", "in: '{{ [1] }}', element: i, task: {" + PY + "}"),
        "task": ("in: '{{ [1] }}', element: i, task: {" + SH + "}", "in: '{{ [1] }}', element: i, task: {" + PY + "}"),
    }),
    "a noop tool": _tool("kind: noop", {"kind": ("{workflow: [{step: start, tool: {kind: noop}}]}", "{workflow: [" + START + "}]}")}),
}
# fmt: on
