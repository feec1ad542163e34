"""The sandbox as a server of the Model Context Protocol (MCP): `cleaner_sandbox.serve_mcp`.

- `tools`: what the tools take, do and answer, whatever the transport · `sessions`: handles of open sessions.
- `serve`: the transports, stdio and streamable HTTP, and who may call.

A session of the sandbox is named by a handle that a tool returns, not tied to a connection: the protocol has had no
connections over HTTP since its version 2026-07-28, and clients of older versions can use handles as well.

Limits: needs the extra `cleaner-sandbox[mcp]`. Files can't be uploaded or fetched with a tool; programs read and
write them.
"""
