//! The Thrift service, by clients of both transports and both protocols.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TCompactInputProtocol, TCompactOutputProtocol,
    TFieldIdentifier, TInputProtocol, TListIdentifier, TMessageIdentifier, TMessageType,
    TOutputProtocol, TStructIdentifier, TType,
};

use crate::harness::{PATIENCE, Server, folder};

/// How a client frames and encodes.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    is_framed: bool,
    is_compact: bool,
}

pub const FORMS: [Form; 4] = [
    Form {
        is_framed: false,
        is_compact: false,
    },
    Form {
        is_framed: false,
        is_compact: true,
    },
    Form {
        is_framed: true,
        is_compact: false,
    },
    Form {
        is_framed: true,
        is_compact: true,
    },
];

/// An argument of a call.
pub enum Argument<'a> {
    Bytes(i16, &'a str),
    Bool(i16, bool),
    I32(i16, i32),
    I64(i16, i64),
    Keys(i16, &'a [&'a str]),
    Entries(i16, &'a [(&'a str, &'a str)]),
}

pub use Argument::{Bool, Bytes, Entries, I32, I64, Keys};

fn write_arguments(output: &mut dyn TOutputProtocol, name: &str, arguments: &[Argument<'_>]) {
    let mut write = || -> thrift::Result<()> {
        output.write_message_begin(&TMessageIdentifier::new(name, TMessageType::Call, 5))?;
        output.write_struct_begin(&TStructIdentifier::new(""))?;
        for argument in arguments {
            let (kind, id) = match argument {
                Bytes(id, _) => (TType::String, *id),
                Bool(id, _) => (TType::Bool, *id),
                I32(id, _) => (TType::I32, *id),
                I64(id, _) => (TType::I64, *id),
                Keys(id, _) | Entries(id, _) => (TType::List, *id),
            };
            output.write_field_begin(&TFieldIdentifier::new("", kind, id))?;
            match argument {
                Bytes(_, text) => output.write_bytes(text.as_bytes())?,
                Bool(_, truth) => output.write_bool(*truth)?,
                I32(_, number) => output.write_i32(*number)?,
                I64(_, number) => output.write_i64(*number)?,
                Keys(_, keys) => {
                    let head = TListIdentifier::new(TType::String, keys.len() as i32);
                    output.write_list_begin(&head)?;
                    for key in *keys {
                        output.write_bytes(key.as_bytes())?;
                    }
                    output.write_list_end()?;
                }
                Entries(_, entries) => {
                    let head = TListIdentifier::new(TType::Struct, entries.len() as i32);
                    output.write_list_begin(&head)?;
                    for (key, value) in *entries {
                        output.write_struct_begin(&TStructIdentifier::new(""))?;
                        for (id, text) in [(1, key), (2, value)] {
                            let field = TFieldIdentifier::new("", TType::String, id);
                            output.write_field_begin(&field)?;
                            output.write_bytes(text.as_bytes())?;
                            output.write_field_end()?;
                        }
                        output.write_field_stop()?;
                        output.write_struct_end()?;
                    }
                    output.write_list_end()?;
                }
            }
            output.write_field_end()?;
        }
        output.write_field_stop()?;
        output.write_struct_end()?;
        output.write_message_end()?;
        output.flush()
    };
    write().unwrap();
}

/// Shows a value: `{0:{1:"Quercus"}}` is a struct in the result of a call.
fn show(input: &mut dyn TInputProtocol, kind: TType, text: &mut String) -> thrift::Result<()> {
    match kind {
        TType::Bool => write!(text, "{}", input.read_bool()?).unwrap(),
        TType::I32 => write!(text, "{}", input.read_i32()?).unwrap(),
        TType::I64 => write!(text, "{}", input.read_i64()?).unwrap(),
        TType::Double => write!(text, "{}", input.read_double()?).unwrap(),
        TType::String => {
            let bytes = input.read_bytes()?;
            write!(text, "{:?}", String::from_utf8_lossy(&bytes)).unwrap();
        }
        TType::List => {
            let list = input.read_list_begin()?;
            text.push('[');
            for _ in 0..list.size {
                show(input, list.element_type, text)?;
            }
            input.read_list_end()?;
            text.push(']');
        }
        TType::Map => {
            let map = input.read_map_begin()?;
            for _ in 0..map.size {
                show(input, map.key_type.unwrap(), text)?;
                text.push('=');
                show(input, map.value_type.unwrap(), text)?;
                text.push(' ');
            }
            input.read_map_end()?;
        }
        TType::Struct => {
            input.read_struct_begin()?;
            text.push('{');
            loop {
                let field = input.read_field_begin()?;
                if field.field_type == TType::Stop {
                    break;
                }
                write!(text, "{}:", field.id.unwrap()).unwrap();
                show(input, field.field_type, text)?;
                input.read_field_end()?;
            }
            input.read_struct_end()?;
            text.push('}');
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

pub struct Client {
    stream: TcpStream,
    form: Form,
}

impl Client {
    pub fn connect(address: &str, form: Form) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream, form }
    }

    fn encoded(&self, name: &str, arguments: &[Argument<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.form.is_compact {
            false => write_arguments(
                &mut TBinaryOutputProtocol::new(&mut bytes, true),
                name,
                arguments,
            ),
            true => write_arguments(
                &mut TCompactOutputProtocol::new(&mut bytes),
                name,
                arguments,
            ),
        }
        if self.form.is_framed {
            let length = u32::try_from(bytes.len()).unwrap();
            bytes.splice(0..0, length.to_be_bytes());
        }
        bytes
    }

    fn answer(&mut self) -> String {
        if self.form.is_framed {
            self.stream.read_exact(&mut [0; 4]).unwrap();
        }
        let read = |input: &mut dyn TInputProtocol| {
            let head = input.read_message_begin().unwrap();
            assert_eq!(head.sequence_number, 5);
            let mut text = String::new();
            if head.message_type == TMessageType::Exception {
                text.push('!');
            }
            show(input, TType::Struct, &mut text).unwrap();
            text
        };
        match self.form.is_compact {
            false => read(&mut TBinaryInputProtocol::new(&mut self.stream, true)),
            true => read(&mut TCompactInputProtocol::new(&mut self.stream)),
        }
    }

    pub fn call(&mut self, name: &str, arguments: &[Argument<'_>]) -> String {
        let bytes = self.encoded(name, arguments);
        self.stream.write_all(&bytes).unwrap();
        self.answer()
    }
}

/// A server with this port, and that port's address.
fn start(folder: &Path, arguments: &[&str]) -> (Server, String) {
    Server::start_with(folder, "thrift", arguments)
}

#[test]
fn calls_answer_in_every_transport_and_protocol() {
    for form in FORMS {
        let folder = folder();
        let (server, address) = start(folder.path(), &["--durability", "synced"]);
        let mut client = Client::connect(&address, form);
        let oak = Bytes(1, "oak");
        assert_eq!(client.call("ping", &[]), "{}");
        assert_eq!(client.call("put", &[oak, Bytes(2, "Quercus")]), "{}");
        assert_eq!(
            client.call("get", &[Bytes(1, "oak")]),
            "{0:{1:\"Quercus\"}}"
        );
        assert_eq!(client.call("get", &[Bytes(1, "elm")]), "{0:{}}");
        let entries = [("elm", "Ulmus"), ("fir", "Abies"), ("elm", "Ulmus glabra")];
        assert_eq!(client.call("multiPut", &[Entries(1, &entries)]), "{}");
        let keys = Keys(1, &["fir", "yew", "elm"]);
        assert_eq!(
            client.call("multiGet", &[keys]),
            "{0:[{1:\"Abies\"}{}{1:\"Ulmus glabra\"}]}"
        );
        let put = |key, value| [Bytes(1, key), Bytes(2, value)];
        assert_eq!(client.call("add", &put("oak", "x")), "{0:false}");
        assert_eq!(client.call("add", &put("yew", "Taxus")), "{0:true}");
        assert_eq!(client.call("update", &put("ash", "x")), "{0:false}");
        assert_eq!(
            client.call("update", &put("yew", "Taxus baccata")),
            "{0:true}"
        );
        let set = [Bytes(1, "oak"), Bytes(2, "x"), Bytes(3, "y")];
        assert_eq!(client.call("compareAndSet", &set), "{0:false}");
        let set = [
            Bytes(1, "oak"),
            Bytes(2, "Quercus"),
            Bytes(3, "Quercus robur"),
        ];
        assert_eq!(client.call("compareAndSet", &set), "{0:true}");
        assert_eq!(
            client.call("compareAndSet", &put("fir", "Abies")),
            "{0:true}"
        );
        let set = [Bytes(1, "fir"), Bytes(3, "Abies alba")];
        assert_eq!(client.call("compareAndSet", &set), "{0:true}");
        assert_eq!(client.call("size", &[]), "{0:4}");
        assert_eq!(
            client.call(
                "range",
                &[Bytes(1, "f"), Bytes(2, "p"), Bool(3, false), I32(4, 1)]
            ),
            "{0:{1:[{1:\"fir\"2:\"Abies alba\"}]2:\"oak\"}}"
        );
        assert_eq!(
            client.call("range", &[Bool(3, true), I32(4, 2)]),
            "{0:{1:[{1:\"yew\"2:\"Taxus baccata\"}{1:\"oak\"2:\"Quercus robur\"}]2:\"oak\"}}"
        );
        assert_eq!(
            client.call("iterate", &[Bytes(1, "yew"), I32(2, 10)]),
            "{0:{1:[{1:\"yew\"2:\"Taxus baccata\"}]}}"
        );
        assert_eq!(client.call("remove", &[Bytes(1, "oak")]), "{0:true}");
        assert_eq!(client.call("remove", &[Bytes(1, "oak")]), "{0:false}");
        let keys = Keys(1, &["elm", "oak", "fir", "elm"]);
        assert_eq!(client.call("multiRemove", &[keys]), "{0:2}");
        for key in [-1, 0, i64::MAX] {
            let put = [I64(1, key), Bytes(2, "number")];
            assert_eq!(client.call("putInteger", &put), "{}");
        }
        assert_eq!(
            client.call("getInteger", &[I64(1, -1)]),
            "{0:{1:\"number\"}}"
        );
        assert_eq!(client.call("removeInteger", &[I64(1, 0)]), "{0:true}");
        assert!(client.call("stats", &[]).contains("entries"));
        assert!(
            client
                .call("burn", &[])
                .starts_with("!{1:\"KVDataService has no")
        );
        // Both protocols serve the same keys.
        assert_eq!(server.client().call("GET yew"), "Taxus baccata");
        assert_eq!(server.client().call("DBSIZE"), ":3");
        server.terminate();
    }
}

#[test]
fn wrong_calls_answer_what_is_wrong_and_change_nothing() {
    let folder = folder();
    let (server, address) = start(folder.path(), &[]);
    server.client().call("HSET hash field 1");
    for form in FORMS {
        let mut client = Client::connect(&address, form);
        let long = "x".repeat(66_000);
        let entries = [("ash", "Fraxinus"), (&*long, "")];
        let answer = client.call("multiPut", &[Entries(1, &entries)]);
        assert!(
            answer.starts_with("{1:{1:2") && answer.contains("65525"),
            "{answer}"
        );
        let answer = client.call("put", &[Bytes(1, "ash")]);
        assert_eq!(answer, "{1:{1:22:\"argument 2: expected bytes\"}}");
        let answer = client.call("range", &[I32(4, 0)]);
        assert!(answer.contains("a limit of 1 to 10,000"), "{answer}");
        let answer = client.call("get", &[Bytes(1, "hash")]);
        assert!(answer.starts_with("{1:{1:6"), "{answer}");
        let entries = [("ash", "Fraxinus"), ("hash", "")];
        let answer = client.call("multiPut", &[Entries(1, &entries)]);
        assert!(answer.starts_with("{1:{1:6"), "{answer}");
        assert_eq!(client.call("get", &[Bytes(1, "ash")]), "{0:{}}");
    }
    server.terminate();
}

#[test]
fn the_password_comes_first() {
    let folder = folder();
    let path = folder.path().join("password");
    std::fs::write(&path, "oak\n").unwrap();
    let arguments = ["--password-file", path.to_str().unwrap()];
    let (server, address) = start(folder.path(), &arguments);
    for form in FORMS {
        let mut client = Client::connect(&address, form);
        assert!(client.call("size", &[]).starts_with("{1:{1:5"));
        assert!(
            client
                .call("auth", &[Bytes(1, "elm")])
                .starts_with("{1:{1:5")
        );
        assert!(client.call("size", &[]).starts_with("{1:{1:5"));
        assert_eq!(client.call("auth", &[Bytes(1, "oak")]), "{}");
        assert_eq!(client.call("size", &[]), "{0:0}");
    }
    // The password may change while the server runs.
    let mut redis = server.client();
    redis.call("AUTH oak");
    redis.call("CONFIG SET requirepass elm");
    let mut client = Client::connect(&address, FORMS[0]);
    assert!(client.call("size", &[]).starts_with("{1:{1:5"));
    assert_eq!(client.call("auth", &[Bytes(1, "elm")]), "{}");
    // A stranger's message has up to 16 KiB.
    let mut stranger = Client::connect(&address, FORMS[2]);
    let large = "x".repeat(20_000);
    let bytes = stranger.encoded("auth", &[Bytes(1, &large)]);
    _ = stranger.stream.write_all(&bytes);
    assert_eq!(stranger.stream.read(&mut [0]).unwrap_or(0), 0);
    server.terminate();
}

#[test]
fn a_password_that_is_set_later_counts() {
    let folder = folder();
    let (server, address) = start(folder.path(), &[]);
    assert_eq!(
        Client::connect(&address, FORMS[3]).call("size", &[]),
        "{0:0}"
    );
    server.client().call("CONFIG SET requirepass oak");
    let mut client = Client::connect(&address, FORMS[3]);
    assert!(client.call("size", &[]).starts_with("{1:{1:5"));
    assert_eq!(client.call("auth", &[Bytes(1, "oak")]), "{}");
    assert_eq!(client.call("size", &[]), "{0:0}");
    server.terminate();
}

#[test]
fn messages_in_parts_and_many_at_once_are_answered_in_order() {
    let folder = folder();
    let (server, address) = start(folder.path(), &["--durability", "synced"]);
    for form in FORMS {
        let mut client = Client::connect(&address, form);
        for byte in client.encoded("put", &[Bytes(1, "oak"), Bytes(2, "Quercus")]) {
            client.stream.write_all(&[byte]).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(client.answer(), "{}");
        let value = "v".repeat(3 << 20);
        let put = client.encoded("put", &[Bytes(1, "large"), Bytes(2, &value)]);
        let get = client.encoded("get", &[Bytes(1, "oak")]);
        let size = client.encoded("size", &[]);
        client.stream.write_all(&[put, get, size].concat()).unwrap();
        assert_eq!(client.answer(), "{}");
        assert_eq!(client.answer(), "{0:{1:\"Quercus\"}}");
        assert_eq!(client.answer(), "{0:2}");
        let answer = client.call("get", &[Bytes(1, "large")]);
        assert_eq!(answer.len(), value.len() + "{0:{1:\"\"}}".len());
    }
    server.terminate();
}

#[test]
fn strangers_bytes_end_their_connection_alone() {
    let folder = folder();
    let (server, address) = start(folder.path(), &[]);
    let bad: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 100],
        &[0x80, 0xff, 0, 1],
        &[0, 0, 0, 8, 0x80, 1, 0, 1, 0, 0, 0, 99],
        &[0x7f, 0xff, 0xff, 0xff, 0x80],
        // A reply in place of a call.
        &[0, 0, 0, 14, 0x80, 1, 0, 2, 0, 0, 0, 1, b'x', 0, 0, 0, 0, 0],
    ];
    for bytes in bad {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        // Closed, by an end or by a reset.
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "{bytes:?}");
    }
    assert_eq!(Client::connect(&address, FORMS[0]).call("ping", &[]), "{}");
    server.terminate();
}

/// Clients of other makers: Debian's compiler with Python's library, and thriftpy2.
#[test]
fn clients_of_other_makers_agree() {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/programs/thrift_clients.py"
    );
    let idl = concat!(env!("CARGO_MANIFEST_DIR"), "/../../idl/cambium.thrift");
    let python = std::env::var("CAMBIUM_PYTHON").unwrap_or("python3".into());
    let folder = folder();
    let (server, address) = start(folder.path(), &[]);
    let ran = Command::new(python)
        .arg(script)
        .arg(idl)
        .arg(&address)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output();
    let Ok(ran) = ran else {
        eprintln!("SKIPPED: no Python runs other makers' clients of Thrift");
        return;
    };
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    eprint!("{said}");
    server.terminate();
}
