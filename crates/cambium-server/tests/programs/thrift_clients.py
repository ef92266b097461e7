"""Calls the Thrift service with the clients that are installed here.

Usage: thrift_clients.py IDL HOST:PORT, in a folder that may be written.

thriftpy2 reads the IDL itself. Apache's library needs what the compiler `thrift` makes of
it. A client that is not installed is named on standard error and skipped.
"""

import importlib
import shutil
import subprocess
import sys


def calls(client, module, name):
    """The same calls, whatever the client."""
    key = name.encode()
    client.ping()
    client.put(key, b"\x00\xff")
    assert client.get(key).value == b"\x00\xff"
    assert client.get(key + b"?").value is None
    client.multiPut([module.Entry(key=key + b"1", value=b"one"), module.Entry(key=key + b"2", value=b"two")])
    values = [found.value for found in client.multiGet([key + b"2", b"none", key + b"1"])]
    assert values == [b"two", None, b"one"], values
    assert client.add(key, b"x") is False
    assert client.update(key, b"new") is True
    assert client.compareAndSet(key, b"old", b"x") is False
    assert client.compareAndSet(key, b"new", None) is True
    client.putInteger(-5, b"five")
    assert client.getInteger(-5).value == b"five"
    assert client.removeInteger(-5) is True
    page = client.range(key, key + b"~", True, 10)
    assert [entry.key for entry in page.entries] == [key + b"2", key + b"1"]
    assert page.resume is None
    seen, token = [], None
    while True:
        page = client.iterate(token, 1)
        seen += [entry.key for entry in page.entries]
        token = page.resume
        if token is None:
            break
    assert key + b"1" in seen and len(seen) == client.size(), seen
    assert client.multiRemove([key + b"1", key + b"2", b"none"]) == 2
    assert client.stats()
    try:
        client.range(None, None, False, 0)
    except module.Failure as failure:
        assert failure.code == module.ErrorCode.INVALID, failure
    else:
        raise AssertionError("a limit of 0 is accepted")
    print(f"{name}: agrees", file=sys.stderr)


def with_thriftpy2(idl, host, port):
    import thriftpy2
    from thriftpy2.protocol import TBinaryProtocolFactory, TCompactProtocolFactory
    from thriftpy2.rpc import make_client
    from thriftpy2.transport import TBufferedTransportFactory, TFramedTransportFactory

    module = thriftpy2.load(idl, module_name="thriftpy2_cambium_thrift")
    # Text that is no UTF-8 stays bytes: all strings of the service but messages are binary.
    for transport in (TBufferedTransportFactory(), TFramedTransportFactory()):
        for protocol in (TBinaryProtocolFactory(decode_response=False), TCompactProtocolFactory(decode_response=False)):
            client = make_client(module.KVDataService, host, port, proto_factory=protocol, trans_factory=transport)
            calls(client, module, f"thriftpy2 {type(transport).__name__} {type(protocol).__name__}")
            client.close()


def with_apache(idl, host, port):
    from thrift.protocol import TBinaryProtocol, TCompactProtocol
    from thrift.transport import TSocket, TTransport

    subprocess.run(["thrift", "--gen", "py", "-o", ".", idl], check=True)
    sys.path.insert(0, "gen-py")
    module = importlib.import_module("cambium_thrift.ttypes")
    service = importlib.import_module("cambium_thrift.KVDataService")
    for transport in (TTransport.TBufferedTransport, TTransport.TFramedTransport):
        for protocol in (TBinaryProtocol.TBinaryProtocol, TCompactProtocol.TCompactProtocol):
            opened = transport(TSocket.TSocket(host, port))
            opened.open()
            calls(service.Client(protocol(opened)), module, f"apache {transport.__name__} {protocol.__name__}")
            opened.close()


def has(module):
    try:
        importlib.import_module(module)
        return True
    except ImportError:
        return False


def main():
    idl, address = sys.argv[1:]
    host, port = address.rsplit(":", 1)
    if has("thriftpy2"):
        with_thriftpy2(idl, host, int(port))
    else:
        print("SKIPPED: thriftpy2 is not installed", file=sys.stderr)
    if has("thrift.protocol") and shutil.which("thrift"):
        with_apache(idl, host, int(port))
    else:
        print("SKIPPED: Apache's compiler `thrift`, or its Python library, is not installed", file=sys.stderr)


main()
