"""Something that runs in a sandbox and can be asked whether it goes on: it has a variable, a listening server
and an open file.
"""

from __future__ import annotations

from tests.support.http.signed import Client

PORT = 4242
# Who sends a word is answered with all three.
SESSION = f"""
import socket
x = 42
listener = socket.create_server(("127.0.0.1", {PORT}))
book = open("/root/book", "a+")
book.write("begun "); book.flush()
while True:
    client, _ = listener.accept()
    book.write(client.recv(100).decode() + " "); book.flush(); book.seek(0)
    client.sendall(f"{{x}} {{book.read()}}".encode()); client.close()
"""
BEGIN = (
    "rm -f /root/book; nohup python3 /root/session.py >/dev/null 2>&1 &"
    " while ! test -s /root/book; do sleep 0.05; done"
)
ASK = f"""
import socket, sys
client = socket.create_connection(("127.0.0.1", {PORT}))
client.sendall(sys.argv[1].encode())
print(client.recv(10000).decode())
"""


async def said(client: Client, path: str, *argv: str) -> str:
    """What a command prints."""
    answer = await client.post(f"{path}/exec", {"argv": argv})
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert result["exit_code"] == 0, result
    return str(result["stdout"]).strip()


async def begin_session(client: Client, path: str) -> None:
    answer = await client.put(f"{path}/files/content?path=/root/session.py", SESSION.encode())
    assert answer.status_code in (200, 201, 204), answer.text
    await said(client, path, "sh", "-c", BEGIN)


async def told(client: Client, path: str, word: str) -> str:
    """What the session answers to a word."""
    return await said(client, path, "python3", "-c", ASK, word)
