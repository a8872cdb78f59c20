"""A receiver of callbacks (Standard Webhooks). CALLBACK_SECRETS holds whsec_… secrets, several while rotating."""
import base64, hashlib, hmac, http.server, json, os, sqlite3, sys, time

KEYS = [base64.b64decode(secret.removeprefix("whsec_")) for secret in os.environ["CALLBACK_SECRETS"].split()]
TOLERANCE_S = 300
inbox = sqlite3.connect(sys.argv[2], isolation_level=None)  # on disk: what was answered with 2xx is not sent again
inbox.execute("CREATE TABLE IF NOT EXISTS inbox (id TEXT PRIMARY KEY, body BLOB, done INTEGER DEFAULT 0)")

def is_genuine(headers, body):
    """Some signature in the header was made by one of our keys, over the raw bytes, and not long ago."""
    message_id, at = headers["webhook-id"] or "", headers["webhook-timestamp"] or ""
    if not (at.isascii() and at.isdigit() and abs(time.time() - int(at)) <= TOLERANCE_S):
        return False
    signed = f"{message_id}.{at}.".encode() + body
    ours = ["v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in KEYS]
    theirs = (headers["webhook-signature"] or "").split()
    return any(hmac.compare_digest(a.encode(), b.encode()) for a in ours for b in theirs)

class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not is_genuine(self.headers, body):
            return self.answer(401)
        # Kept, then answered, then worked on by somebody else: the hub waits 15 s, and takes silence for a failure.
        kept = inbox.execute("INSERT OR IGNORE INTO inbox (id, body) VALUES (?, ?)", (self.headers["webhook-id"], body))
        if kept.rowcount == 0:
            return self.answer(200)  # it came before: callbacks arrive at least once
        message = json.loads(body)
        print(message["type"], message["data"].get("reach_id"), flush=True)
        self.answer(200)

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Hook)
print(f"listening: http://127.0.0.1:{server.server_port}/hook", flush=True)
server.serve_forever()
