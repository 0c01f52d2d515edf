"""The macOS layer: a Seatbelt profile written from the policy, applied by sandbox-exec. Unverified: no test has run it on macOS.

It never claims more than the profile says, and refuses values that cannot be quoted in it.

Contract (implementation follows): SEATBELT.probe/plan/apply as any layer; profile(policy, context) -> str
"""
