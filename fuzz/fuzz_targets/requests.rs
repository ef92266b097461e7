//! Requests of clients of the server: RESP and both protocols of Thrift.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| cambium_server::decode_requests(bytes));
