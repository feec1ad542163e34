"""What a plug-in must do, as tests that its author runs: subclass a contract in your own tests and say what yours is.

    from cleaner_rl.contracts.call_formats import CallFormatContract

    class TestBrackets(CallFormatContract):
        def make(self): return Brackets()
        def write(self, tool, code): return f"[[{tool}]]{code}[[/]]"

- `call_formats` · `graders` · `log_adapters` · `tools` · `engines` · `trainers`: a
  contract each.

pytest collects the subclass; nothing here imports it. Our own formats, rules, graders, tools,
engines and adapters to trainers pass the same contracts in our tests. A message says what is wrong with the plug-in.

Limits: a contract checks what every plug-in of its kind must do. That yours reads your
data right, only your own tests know.
"""
