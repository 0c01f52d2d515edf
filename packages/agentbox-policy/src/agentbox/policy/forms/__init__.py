"""The closed set of matchers that every rule compiles to: path, host, command, name (docs/spec/policy.md, section 8).

Never grows with a rule kind: an evaluator in another language needs these four and nothing else.
"""
