"""Connections that notice when the other side is gone; the engines' client has them too."""

from __future__ import annotations

import socket

import aiohttp


def probing_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A machine that vanishes closes nothing; the kernel finds out."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):  # some systems lack the first
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
    return made
