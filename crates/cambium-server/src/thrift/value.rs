//! Thrift's values without generated code: what a call's arguments decode to, and what an
//! answer is encoded from.
//!
//! The codec of crate `thrift` reads and writes the bytes of both protocols. Limits are those
//! of the message: a length that is larger than the bytes that have arrived takes no memory.

use std::io::Write;

use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TCompactInputProtocol, TCompactOutputProtocol,
    TFieldIdentifier, TInputProtocol, TListIdentifier, TMapIdentifier, TMessageIdentifier,
    TMessageType, TOutputProtocol, TStructIdentifier, TType,
};
use thrift::{
    ApplicationError, ApplicationErrorKind, ProtocolErrorKind, TConfiguration, TransportErrorKind,
};

/// The code of [`Answer::Moved`] in `idl/cambium.thrift`.
const MOVED: i32 = 7;
/// Structs within structs. The service needs three.
const MOST_DEPTH: usize = 16;
/// Bytes from which on the memory for a list of values is not taken ahead.
const MOST_AHEAD: usize = 1024;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A truth.
    Bool(bool),
    /// A 32-bit integer, also that of an enumeration.
    I32(i32),
    /// A 64-bit integer.
    I64(i64),
    /// A number.
    Double(f64),
    /// Bytes, or text.
    Binary(Vec<u8>),
    /// Values of one kind.
    List(Vec<Value>),
    /// Text and numbers.
    Numbers(Vec<(String, f64)>),
    /// Fields by their numbers.
    Struct(Vec<(i16, Value)>),
}

/// How a client encodes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Fixed widths.
    Binary,
    /// Variable widths.
    Compact,
}

/// A message of a client.
#[derive(Debug, PartialEq)]
pub struct Message {
    /// The method.
    pub name: String,
    /// It is returned with the answer.
    pub sequence: i32,
    /// The client waits for no answer.
    pub is_oneway: bool,
    /// The arguments, by their numbers.
    pub arguments: Vec<(i16, Value)>,
}

/// Why bytes are no message.
#[derive(Debug, PartialEq)]
pub enum Undecoded {
    /// More bytes are needed.
    Incomplete,
    /// No more bytes would help.
    Malformed(String),
}

impl From<thrift::Error> for Undecoded {
    fn from(error: thrift::Error) -> Self {
        match error {
            thrift::Error::Transport(error) if error.kind == TransportErrorKind::EndOfFile => {
                Undecoded::Incomplete
            }
            // The length of a string or list is beyond the bytes that are here.
            thrift::Error::Protocol(error) if error.kind == ProtocolErrorKind::SizeLimit => {
                Undecoded::Incomplete
            }
            error => Undecoded::Malformed(error.to_string()),
        }
    }
}

/// Decodes one message from the beginning of `bytes`, and says how many it took.
///
/// # Errors
/// See [`Undecoded`].
pub fn decode(protocol: Protocol, bytes: &[u8]) -> Result<(Message, usize), Undecoded> {
    let limits = TConfiguration::builder()
        .max_message_size(None)
        .max_frame_size(None)
        .max_recursion_depth(Some(MOST_DEPTH))
        .max_container_size(Some(bytes.len()))
        .max_string_size(Some(bytes.len()))
        .build()?;
    let mut rest = bytes;
    let message = match protocol {
        Protocol::Binary => read(&mut TBinaryInputProtocol::with_config(
            &mut rest, true, limits,
        ))?,
        Protocol::Compact => read(&mut TCompactInputProtocol::with_config(&mut rest, limits))?,
    };
    Ok((message, bytes.len() - rest.len()))
}

fn read(input: &mut dyn TInputProtocol) -> Result<Message, Undecoded> {
    let head = input.read_message_begin()?;
    let is_oneway = match head.message_type {
        TMessageType::Call => false,
        TMessageType::OneWay => true,
        other => {
            let what = format!("expected a call, and found a message of type {other:?}");
            return Err(Undecoded::Malformed(what));
        }
    };
    let arguments = read_fields(input, 0)?;
    input.read_message_end()?;
    Ok(Message {
        name: head.name,
        sequence: head.sequence_number,
        is_oneway,
        arguments,
    })
}

fn read_fields(
    input: &mut dyn TInputProtocol,
    depth: usize,
) -> Result<Vec<(i16, Value)>, Undecoded> {
    if depth > MOST_DEPTH {
        let what = format!("structs lie more than {MOST_DEPTH} deep within each other");
        return Err(Undecoded::Malformed(what));
    }
    let mut fields = Vec::new();
    input.read_struct_begin()?;
    loop {
        let field = input.read_field_begin()?;
        let (TFieldIdentifier { field_type, .. }, Some(id)) = (&field, field.id) else {
            break;
        };
        if *field_type == TType::Stop {
            break;
        }
        match read_value(input, *field_type, depth)? {
            Some(value) => fields.push((id, value)),
            // A newer client may send fields of other types: they are skipped.
            None => input.skip(*field_type)?,
        }
        input.read_field_end()?;
    }
    input.read_struct_end()?;
    Ok(fields)
}

/// Reads a value of a type that the service has.
fn read_value(
    input: &mut dyn TInputProtocol,
    kind: TType,
    depth: usize,
) -> Result<Option<Value>, Undecoded> {
    Ok(Some(match kind {
        TType::Bool => Value::Bool(input.read_bool()?),
        TType::I32 => Value::I32(input.read_i32()?),
        TType::I64 => Value::I64(input.read_i64()?),
        TType::Double => Value::Double(input.read_double()?),
        TType::String => Value::Binary(input.read_bytes()?),
        TType::Struct => Value::Struct(read_fields(input, depth + 1)?),
        TType::List => {
            let list = input.read_list_begin()?;
            let count = usize::try_from(list.size).unwrap_or(0);
            let mut values = Vec::with_capacity(count.min(MOST_AHEAD));
            for _ in 0..count {
                match read_value(input, list.element_type, depth + 1)? {
                    Some(value) => values.push(value),
                    None => input.skip(list.element_type)?,
                }
            }
            input.read_list_end()?;
            Value::List(values)
        }
        _ => return Ok(None),
    }))
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// With a result, or with none for a method that has none.
    Done(Option<Value>),
    /// With the service's exception: a code of the IDL, and a text.
    Failure(i32, String),
    /// With the service's exception: another node has the keys; a text, and that node's address.
    Moved(String, String),
    /// There is no such method.
    Unknown,
}

/// Encodes the answer of a message.
///
/// # Errors
/// Those of the codec: none with memory as its target.
pub fn encode(
    protocol: Protocol,
    name: &str,
    sequence: i32,
    answer: &Answer,
) -> thrift::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match protocol {
        Protocol::Binary => write(
            &mut TBinaryOutputProtocol::new(&mut bytes as &mut dyn Write, true),
            name,
            sequence,
            answer,
        )?,
        Protocol::Compact => write(
            &mut TCompactOutputProtocol::new(&mut bytes as &mut dyn Write),
            name,
            sequence,
            answer,
        )?,
    }
    Ok(bytes)
}

fn write(
    output: &mut dyn TOutputProtocol,
    name: &str,
    sequence: i32,
    answer: &Answer,
) -> thrift::Result<()> {
    let kind = match answer {
        Answer::Unknown => TMessageType::Exception,
        _ => TMessageType::Reply,
    };
    output.write_message_begin(&TMessageIdentifier::new(name, kind, sequence))?;
    match answer {
        Answer::Unknown => {
            let error = ApplicationError::new(
                ApplicationErrorKind::UnknownMethod,
                format!("KVDataService has no method {name}"),
            );
            thrift::Error::write_application_error_to_out_protocol(&error, output)?;
        }
        Answer::Done(None) => write_fields(output, &[])?,
        Answer::Done(Some(value)) => write_fields(output, &[(0, value.clone())])?,
        Answer::Failure(code, text) => write_exception(output, *code, text, None)?,
        Answer::Moved(text, address) => write_exception(output, MOVED, text, Some(address))?,
    }
    output.write_message_end()?;
    output.flush()
}

fn write_exception(
    output: &mut dyn TOutputProtocol,
    code: i32,
    text: &str,
    address: Option<&String>,
) -> thrift::Result<()> {
    let binary = |text: &str| Value::Binary(text.as_bytes().to_vec());
    let mut fields = vec![(1, Value::I32(code)), (2, binary(text))];
    fields.extend(address.map(|address| (3, binary(address))));
    write_fields(output, &[(1, Value::Struct(fields))])
}

fn write_fields(output: &mut dyn TOutputProtocol, fields: &[(i16, Value)]) -> thrift::Result<()> {
    output.write_struct_begin(&TStructIdentifier::new(""))?;
    for (id, value) in fields {
        output.write_field_begin(&TFieldIdentifier::new("", kind_of(value), *id))?;
        write_value(output, value)?;
        output.write_field_end()?;
    }
    output.write_field_stop()?;
    output.write_struct_end()
}

fn kind_of(value: &Value) -> TType {
    match value {
        Value::Bool(_) => TType::Bool,
        Value::I32(_) => TType::I32,
        Value::I64(_) => TType::I64,
        Value::Double(_) => TType::Double,
        Value::Binary(_) => TType::String,
        Value::List(_) => TType::List,
        Value::Numbers(_) => TType::Map,
        Value::Struct(_) => TType::Struct,
    }
}

fn write_value(output: &mut dyn TOutputProtocol, value: &Value) -> thrift::Result<()> {
    match value {
        Value::Bool(truth) => output.write_bool(*truth),
        Value::I32(number) => output.write_i32(*number),
        Value::I64(number) => output.write_i64(*number),
        Value::Double(number) => output.write_double(*number),
        Value::Binary(bytes) => output.write_bytes(bytes),
        Value::Struct(fields) => write_fields(output, fields),
        Value::List(values) => {
            // Lists of the service hold structs; an empty one says so too.
            let kind = values.first().map_or(TType::Struct, kind_of);
            output.write_list_begin(&TListIdentifier::new(kind, values.len() as i32))?;
            for value in values {
                write_value(output, value)?;
            }
            output.write_list_end()
        }
        Value::Numbers(numbers) => {
            let head = TMapIdentifier::new(TType::String, TType::Double, numbers.len() as i32);
            output.write_map_begin(&head)?;
            for (name, number) in numbers {
                output.write_string(name)?;
                output.write_double(*number)?;
            }
            output.write_map_end()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A call as a client encodes it.
    fn call(protocol: Protocol, name: &str, fields: &[(i16, Value)]) -> Vec<u8> {
        fn send(output: &mut dyn TOutputProtocol, name: &str, fields: &[(i16, Value)]) {
            let head = TMessageIdentifier::new(name, TMessageType::Call, 7);
            output.write_message_begin(&head).unwrap();
            write_fields(output, fields).unwrap();
            output.write_message_end().unwrap();
        }
        let mut bytes = Vec::new();
        match protocol {
            Protocol::Binary => send(
                &mut TBinaryOutputProtocol::new(&mut bytes, true),
                name,
                fields,
            ),
            Protocol::Compact => {
                send(&mut TCompactOutputProtocol::new(&mut bytes), name, fields);
            }
        }
        bytes
    }

    #[test]
    fn calls_decode_to_what_was_sent_and_every_part_of_one_is_incomplete() {
        let entry = Value::Struct(vec![
            (1, Value::Binary(b"oak".to_vec())),
            (2, Value::Binary(vec![0xff; 300])),
        ]);
        let fields = vec![
            (1, Value::List(vec![entry.clone(), entry])),
            (2, Value::Bool(true)),
            (3, Value::I32(-5)),
            (40, Value::I64(i64::MIN)),
        ];
        for protocol in [Protocol::Binary, Protocol::Compact] {
            let bytes = call(protocol, "multiPut", &fields);
            let (message, taken) = decode(protocol, &bytes).unwrap();
            assert_eq!(taken, bytes.len());
            assert_eq!((message.name.as_str(), message.sequence), ("multiPut", 7));
            assert_eq!(message.arguments, fields);
            for end in 0..bytes.len() {
                let part = decode(protocol, &bytes[..end]);
                assert_eq!(part, Err(Undecoded::Incomplete), "{protocol:?} {end}");
            }
        }
    }

    #[test]
    fn a_length_that_has_not_arrived_takes_no_memory() {
        let mut bytes = call(Protocol::Binary, "get", &[(1, Value::Binary(vec![1]))]);
        let length = bytes.len() - 6;
        bytes[length..length + 4].copy_from_slice(&i32::MAX.to_be_bytes());
        assert_eq!(decode(Protocol::Binary, &bytes), Err(Undecoded::Incomplete));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn no_bytes_make_the_decoder_panic(
            body in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let binary = [&[0x80, 1, 0, 1, 0, 0, 0, 1, b'x', 0, 0, 0, 0][..], &body].concat();
            _ = decode(Protocol::Binary, &binary);
            _ = decode(Protocol::Binary, &body);
            let compact = [&[0x82, 0x21, 0, 1, b'x'][..], &body].concat();
            _ = decode(Protocol::Compact, &compact);
            _ = decode(Protocol::Compact, &body);
        }

        #[test]
        fn a_broken_call_decodes_to_no_more_than_its_bytes(
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            end in any::<prop::sample::Index>(),
        ) {
            let entry = Value::Struct(vec![(1, Value::Binary(b"oak".to_vec()))]);
            let fields = [(1, Value::List(vec![entry])), (2, Value::I32(5)), (3, Value::Bool(true))];
            for protocol in [Protocol::Binary, Protocol::Compact] {
                let mut bytes = call(protocol, "multiPut", &fields);
                let place = place.index(bytes.len());
                bytes[place] = byte;
                let part = &bytes[..end.index(bytes.len() + 1)];
                if let Ok((_, taken)) = decode(protocol, part) {
                    prop_assert!(taken <= part.len());
                    // The bytes that a decode consumed are a whole message.
                    prop_assert!(decode(protocol, &part[..taken]).is_ok());
                }
            }
        }
    }
}
