"""A web server for the inside of a sandbox, standard library only: says what it heard, in every framing."""

import base64
import hashlib
import http.server
import json
import sys
import time


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def body(self):
        if self.headers.get("transfer-encoding") == "chunked":
            whole = b""
            while size := int(self.rfile.readline(), 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def do_GET(self):
        if self.headers.get("upgrade") == "websocket":
            return self.websocket()
        path = self.path.partition("?")[0]
        if path == "/stream":
            return self.stream()
        if path == "/close":
            self.send_response(200)
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(b"until the end")
            return None
        if path == "/chunks":
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for word in (b"one ", b"two ", b"three"):
                self.wfile.write(b"%x;ext=1\r\n%b\r\n" % (len(word), word))
            self.wfile.write(b"0\r\nX-Trailer: 1\r\n\r\n")
            return None
        if path == "/big":
            self.send_response(200)
            self.send_header("content-length", str(64 << 20))
            self.end_headers()
            for _ in range(64):
                self.wfile.write(b"x" * (1 << 20))
            return None
        if path == "/sized":
            size = int(self.path.partition("?")[2])
            self.send_response(200)
            self.send_header("content-length", str(size))
            self.end_headers()
            self.wfile.write(b"x" * size)
            return None
        if path == "/slow":
            time.sleep(3)
        return self.say({"body": "", "sha256": ""})

    def do_POST(self):
        whole = self.body()
        return self.say({"size": len(whole), "sha256": hashlib.sha256(whole).hexdigest()})

    do_HEAD = do_DELETE = do_OPTIONS = do_GET
    do_PUT = do_PATCH = do_POST

    def say(self, more):
        reported = {"method": self.command, "path": self.path, "headers": list(self.headers.items()), **more}
        content = json.dumps(reported).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("set-cookie", "inside=1")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def stream(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        for number in range(3):
            self.wfile.write(b"data: %d\n\n" % number)
            self.wfile.flush()
            time.sleep(0.3)

    def websocket(self):
        key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("upgrade", "websocket")
        self.send_header("connection", "upgrade")
        self.send_header(
            "sec-websocket-accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        )
        self.end_headers()
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                break
            size = head[1] & 127
            if size == 126:
                size = int.from_bytes(self.rfile.read(2), "big")
            mask = self.rfile.read(4)
            said = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(size)))
            back = b"echo " + said
            length = bytes([len(back)]) if len(back) < 126 else b"\x7e" + len(back).to_bytes(2, "big")
            self.wfile.write(bytes([0x80 | head[0] & 15]) + length + back)
            self.wfile.flush()
        self.close_connection = True


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
