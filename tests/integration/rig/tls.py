"""TLS on both sides of the router: certificates, a client, a worker.

Certificates are made by the openssl program when they are first needed, for the length of a test
run. A connection that ends without close_notify is an error here, never an end of data.
"""

import socket
import ssl
import subprocess
import threading

from rig.client import Client, ask
from rig.wait import until
from rig.wire import Closed, Reader
from rig.worker import Worker


class Authority:
    """Signs certificates. `cert` and `key` are its own files."""

    def __init__(self, directory, name="authority"):
        self.directory = directory
        self.name = name
        self.cert, self.key = directory / f"{name}.crt", directory / f"{name}.key"
        self._openssl(self.key, self.cert, f"/CN=kvway test {name}", [])

    def _openssl(self, key, cert, subject, options):
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        command += ["-nodes", "-days", "2", "-subj", subject, "-keyout", key, "-out", cert, *options]
        run = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr

    def issue(self, name, names):
        """(cert, key) files of a certificate for names such as DNS:a.example,IP:127.0.0.1."""
        cert, key = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        options = ["-CA", self.cert, "-CAkey", self.key, "-addext", f"subjectAltName={names}"]
        options += ["-addext", "basicConstraints=critical,CA:FALSE"]
        self._openssl(key, cert, f"/CN={name}", options)
        return cert, key

    def issue_authority(self, name):
        """An authority that this one has signed."""
        made = Authority.__new__(Authority)
        made.directory, made.name = self.directory, name
        made.cert, made.key = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        options = ["-CA", self.cert, "-CAkey", self.key, "-addext", "basicConstraints=critical,CA:TRUE"]
        made._openssl(made.key, made.cert, f"/CN=kvway test {name}", options)
        return made

    def issue_expired(self, name, names, end="200131000000Z"):
        """As issue, from January 2020 until `end`. Only `openssl ca` can date back."""
        cert, key = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        request, config = self.directory / f"{name}.csr", self.directory / f"{name}.cnf"
        (self.directory / "index").write_text("")
        config.write_text(
            "[ca]\ndefault_ca = any\n[any]\nunique_subject = no\nrand_serial = yes\n"
            f"default_md = sha256\npolicy = free\ndatabase = {self.directory}/index\n"
            f"new_certs_dir = {self.directory}\nx509_extensions = more\n[free]\ncommonName = supplied\n"
            f"[more]\nsubjectAltName = {names}\nbasicConstraints = critical,CA:FALSE\n"
        )
        make = ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        make += ["-subj", f"/CN={name}", "-keyout", key, "-out", request]
        sign = ["ca", "-batch", "-notext", "-config", config, "-cert", self.cert, "-keyfile", self.key]
        sign += ["-in", request, "-out", cert, "-startdate", "200101000000Z", "-enddate", end]
        for arguments in (make, sign):
            command = ["openssl", *map(str, arguments)]
            run = subprocess.run(command, capture_output=True, text=True)
            assert run.returncode == 0, run.stderr
        return cert, key


def client_context(authority):
    context = ssl.create_default_context(cafile=str(authority.cert))
    context.set_alpn_protocols(["http/1.1"])
    return context


def server_context(pair):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*map(str, pair))
    return context


class TlsClient(Client):
    """A client whose connection is TLS."""

    def __init__(self, port, context, name="127.0.0.1", session=None, **options):
        super().__init__(port, **options)
        self.sock = context.wrap_socket(
            self.sock, server_hostname=name, suppress_ragged_eofs=False, session=session
        )
        self.reader = TlsReader(self.sock)


class TlsReader(Reader):
    def fill(self):
        try:
            return super().fill()
        except ssl.SSLError as error:
            raise Closed(f"no close_notify ({error})", bytes(self.buffer)) from error


class TlsWorker(Worker):
    """A mock worker that speaks TLS with this (cert, key)."""

    def __init__(self, pair, *args, host="127.0.0.1", **options):
        self.context = server_context(pair)
        self.host = host
        self.refused = []  # handshakes that failed
        super().__init__(*args, **options)

    @property
    def url(self):
        return f"https://{self.host}:{self.port}"

    def _serve(self, sock):
        wrapped = None
        try:
            sock.settimeout(20)
            wrapped = self.context.wrap_socket(sock, server_side=True)
            wrapped.settimeout(None)
        except OSError as error:
            self.refused.append(error)
            sock.close()
        with self.lock:
            self.sockets.discard(sock)
            if wrapped is not None:
                self.sockets.add(wrapped)
        if wrapped is not None:
            super()._serve(wrapped)


def end_cleanly(ex):
    """close_notify, then FIN."""
    ex.keep = False
    try:
        ex.sock.unwrap().close()
    except OSError:
        ex.sock.close()


def wait_up(router, workers):
    """Router.wait_up for one whose main port speaks TLS: asks the admin address only."""
    wanted = {w.mark for w in workers}

    def up():
        assert router.alive(), f"kvway ended:\n{router.log()}"
        try:
            raw(router.port).close()
            listed = ask(router.admin_port, "GET", "/v1/models").json()["data"]
        except OSError:
            return False
        return wanted <= {model["id"] for model in listed}

    until(up, 15, f"kvway up with {sorted(wanted)}")
    return router


def raw(port, data=b""):
    """A plain connection that has sent these bytes."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    sock.sendall(data)
    return sock


def in_background(function, *args):
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    return thread
