"""Attacks through the network: to our own listeners on loopback, in place of the node's API and its neighbours.

Where an address is not on loopback nothing is sent: connecting a datagram socket only asks for a route.
"""

from __future__ import annotations

from cleaner_sandbox.check.attack import SYSCALL, Attack, AttackClass

_PROGRAMS = {
    "tcp": """
with socket.create_connection(("127.0.0.1", @PORT@), 1) as c:
    c.sendall(b"@NONCE@")
    c.recv(10)
""",
    "tcp6": """
with socket.create_connection(("::1", @PORT6@), 1) as c:
    c.sendall(b"@NONCE@")
    c.recv(10)
""",
    "tcp_mapped": """
with socket.socket(socket.AF_INET6) as c:  # IPv4 in the clothes of IPv6
    c.settimeout(1)
    c.connect(("::ffff:127.0.0.1", @PORT@))
    c.sendall(b"@NONCE@")
    c.recv(10)
""",
    "tcp_any_address": """
with socket.create_connection(("0.0.0.0", @PORT@), 1) as c:
    c.sendall(b"@NONCE@")
    c.recv(10)
""",
    "multipath_tcp": """
with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as c:  # not the protocol that TCP rules name
    c.settimeout(1)
    c.connect(("127.0.0.1", @PORT@))
    c.sendall(b"@NONCE@")
    c.recv(10)
""",
    "tcp_fast_open": """
with socket.socket() as c:  # connects without a connect
    c.settimeout(1)
    c.sendto(b"@NONCE@", 0x20000000, ("127.0.0.1", @PORT@))
    c.recv(10)
""",
    "udp": 'socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"@NONCE@", ("127.0.0.1", @UDP@))\ntime.sleep(0.1)',
    "udp6": 'socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b"@NONCE@", ("::1", @UDP6@))\ntime.sleep(0.1)',
    "dns": r"""
query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x0b@NONCE@\x04test\x00\x00\x01\x00\x01"
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(query, ("127.0.0.1", @UDP@))
time.sleep(0.1)
""",
    "http_api": """
import http.client
c = http.client.HTTPConnection("127.0.0.1", @PORT@, timeout=1)
c.request("POST", "/v1/run?@NONCE@", '{"code": "print(1)"}')
try:
    c.getresponse()
except http.client.HTTPException:
    pass
""",
    "route_to_internet": """
for address in ("192.0.2.1", "10.0.0.1", "192.168.0.1"):
    c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    c.connect((address, 9))
    win(address)
""",
    "route_to_metadata": """
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
c.connect(("169.254.169.254", 80))
win("metadata")
""",
    "raw_icmp": """
socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()
win("raw")
""",
    "ping_socket": """
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)
c.connect(("127.0.0.1", 0))
win("ping")
""",
    "sniff": """
c = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0x0300)
c.settimeout(1)
end = time.monotonic() + 1
while time.monotonic() < end:
    data = c.recv(4096)
    if b"sentinel" in data:
        os.write(1, data)
        break
""",
    "listen_tcp": """
with socket.socket() as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("0.0.0.0", @LISTEN@))
    s.listen()
    s.settimeout(1)
    c, _ = s.accept()
    c.sendall(b"@NONCE@")
    time.sleep(0.2)
""",
    "listen_same_port": """
# Beside the node, on its own port: half of its callers would come here.
with socket.socket() as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", @PORT@))
    s.listen()
    s.settimeout(0.5)
    c, _ = s.accept()
    c.sendall(b"@NONCE@")
    time.sleep(0.2)
""",
    "unix_socket": """
with socket.socket(socket.AF_UNIX) as c:
    c.connect("@UNIX@")
    c.sendall(b"@NONCE@")
    c.settimeout(1)
    c.recv(10)
""",
    "unix_abstract": """
with socket.socket(socket.AF_UNIX) as c:
    c.connect("\\0@ABSTRACT@")
    c.sendall(b"@NONCE@")
    c.settimeout(1)
    c.recv(10)
""",
    "unix_datagram": """
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as c:
    c.sendto(b"@NONCE@", "\\0@ABSTRACT@-datagram")
    time.sleep(0.1)
""",
    "unix_listen_abstract": """
with socket.socket(socket.AF_UNIX) as s:
    s.bind("\\0@ABSTRACT@-listen")
    s.listen()
    s.settimeout(1)
    c, _ = s.accept()
    c.sendall(b"@NONCE@")
    time.sleep(0.2)
""",
    "unix_ancillary": """
# Descriptors handed out to a helper outside, or taken in from it.
import array
with socket.socket(socket.AF_UNIX) as c:
    c.connect("@UNIX@")
    c.sendmsg([b"@NONCE@"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1]))])
    c.settimeout(1)
    data, given, *_ = c.recvmsg(64, 256)
    if given:
        win("descriptors")
""",
    "proc_net": """
for name in ("tcp", "tcp6", "udp", "unix", "raw", "packet", "route", "arp"):
    try:
        text = open("/proc/net/" + name).read()
    except OSError:
        continue
    if ":%04X " % @PORT@ in text or "@ABSTRACT@" in text:
        win(name)
""",
    "interfaces": """
# Beside loopback; some kernels put unused tunnels into every namespace.
names = {name for _, name in socket.if_nameindex() if not name.startswith(("lo", "tunl", "sit", "gre", "ip"))}
if names:
    win(sorted(names))
""",
    "socket_diagnosis": r"""
import struct
c = socket.socket(16, socket.SOCK_RAW, 4)  # netlink, sock_diag
c.settimeout(1)
c.send(struct.pack("=IHHII", 72, 20, 0x301, 1, 0) + struct.pack("=BBBBI", 2, 6, 0, 0, 0xFFFFFFFF) + bytes(48))
data = c.recv(1 << 16)
if struct.pack(">H", @PORT@) in data:
    win("sees every connection")
""",
    "configure_interface": r"""
import fcntl, struct
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
flags = struct.unpack("16sh", fcntl.ioctl(c, 0x8913, struct.pack("16sh", b"lo", 0))[:18])[1]
fcntl.ioctl(c, 0x8914, struct.pack("16sh", b"lo", flags))
win("may set interfaces up and down")
""",
    "vsock": """
socket.socket(40, socket.SOCK_STREAM).close()
win("to the hypervisor")
""",
    "raw_syscalls": SYSCALL
    + """
# Past Python's socket module.
import struct
number, _ = syscall(41, 2, 1, 0)
address = struct.pack("=H", 2) + struct.pack(">H", @PORT@) + bytes([127, 0, 0, 1]) + bytes(8)
if number >= 0 and syscall(42, number, address, 16)[0] == 0:
    os.write(number, b"@NONCE@")
    time.sleep(0.1)
""",
}

_BODY = """
import socket
try:
{body}
except OSError:
    pass
"""


def _guarded(text: str) -> str:
    return _BODY.format(body="\n".join("    " + line for line in text.strip("\n").splitlines()))


ATTACKS: tuple[Attack, ...] = tuple(
    Attack(f"net_{name}", AttackClass.NETWORK, _guarded(text)) for name, text in _PROGRAMS.items()
)
