//! A client of etcd's JSON gateway: what a cluster keeps its membership with.
//!
//! Each call is one POST to `/v3/...` of an endpoint, which etcd serves on its client port.
//! Keys and values are base64, numbers are strings. Endpoints are tried in turn, beginning
//! with the one that answered last; a call that changes something and is not answered may have
//! happened, so all such calls compare what they change.

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use ureq::Agent;

use crate::access::Access;

/// Why a call has no answer: a line for people.
#[derive(Clone, Debug, thiserror::Error)]
#[error("etcd: {0}")]
pub struct Error(pub String);

/// The result of calls.
pub type Result<T> = std::result::Result<T, Error>;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision that made the key.
    pub created: i64,
    /// The revision that changed it last.
    pub changed: i64,
}

/// A condition of a transaction.
#[derive(Clone, Debug)]
pub enum Compare {
    /// It is not there.
    Missing(String),
    /// This revision made it.
    Created(String, i64),
    /// This revision changed it last.
    Changed(String, i64),
}

/// A change that a transaction makes.
#[derive(Clone, Debug)]
pub enum Change {
    /// Gives a key a value, under a lease if one is named.
    Put(String, Vec<u8>, Option<i64>),
    /// Takes a key away.
    Delete(String),
}

/// A client. It holds no connection that matters: each call stands alone.
#[derive(Debug)]
pub struct Etcd {
    endpoints: Vec<String>,
    agent: Agent,
    /// The endpoint that answered last.
    preferred: AtomicUsize,
    /// The user's name and password.
    credentials: Option<(String, String)>,
    /// The token that etcd has given for them. It expires when it is not used for some minutes.
    token: Mutex<Option<String>>,
}

impl Etcd {
    /// A client of endpoints such as `http://127.0.0.1:2379`; a call takes `patience` at most
    /// with each.
    ///
    /// # Errors
    /// No endpoint, or one that is no address; a file of `access` that cannot be used.
    pub fn new(endpoints: &[String], access: &Access, patience: Duration) -> Result<Etcd> {
        let endpoints: Vec<String> = endpoints
            .iter()
            .map(|endpoint| endpoint.trim_end_matches('/').to_string())
            .collect();
        let is_secured = |endpoint: &String| endpoint.starts_with("https://");
        let is_known = |endpoint: &String| endpoint.starts_with("http://") || is_secured(endpoint);
        if endpoints.is_empty() || !endpoints.iter().all(is_known) {
            let endpoints = endpoints.join(",");
            return Err(Error(format!(
                "'{endpoints}': expected addresses such as http://127.0.0.1:2379, divided by commas"
            )));
        }
        let mut config = Agent::config_builder()
            .timeout_global(Some(patience))
            .http_status_as_error(false);
        if endpoints.iter().any(is_secured) {
            config = config.tls_config(access.tls()?);
        }
        Ok(Etcd {
            endpoints,
            agent: config.build().new_agent(),
            preferred: AtomicUsize::new(0),
            credentials: access.credentials()?,
            token: Mutex::new(None),
        })
    }

    fn call(&self, path: &str, body: &Value) -> Result<Value> {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut last = None;
        for turn in 0..self.endpoints.len() {
            let place = (first + turn) % self.endpoints.len();
            match self.call_one(&self.endpoints[place], path, body) {
                Ok(answer) => {
                    self.preferred.store(place, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error("no endpoint".into())))
    }

    fn call_one(&self, endpoint: &str, path: &str, body: &Value) -> Result<Value> {
        let Some((name, password)) = &self.credentials else {
            return self.post(endpoint, path, body);
        };
        if self.token().is_some() {
            match self.post(endpoint, path, body) {
                // The token has ended, or users have changed: the call was not made.
                Err(error) if error.0.contains("auth") => {}
                answer => return answer,
            }
        }
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let user = json!({ "name": name, "password": password });
        let answer = self.post(endpoint, "/v3/auth/authenticate", &user)?;
        let token = answer["token"].as_str().map(str::to_string);
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
        self.post(endpoint, path, body)
    }

    fn token(&self) -> Option<String> {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        token.clone()
    }

    fn request(&self, url: String) -> ureq::RequestBuilder<ureq::typestate::WithBody> {
        let request = self.agent.post(url);
        match self.token() {
            Some(token) => request.header("Authorization", token),
            None => request,
        }
    }

    fn post(&self, endpoint: &str, path: &str, body: &Value) -> Result<Value> {
        let failed = |error: &dyn std::fmt::Display| Error(format!("{endpoint}: {error}"));
        let mut response = self
            .request(format!("{endpoint}{path}"))
            .send(body.to_string().as_bytes())
            .map_err(|error| failed(&error))?;
        let text = response
            .body_mut()
            .with_config()
            .limit(64 << 20)
            .read_to_string()
            .map_err(|error| failed(&error))?;
        let answer: Value = serde_json::from_str(&text)
            .map_err(|_| failed(&format!("no JSON in its answer: {text:.100}")))?;
        match answer.get("error").or(answer.get("message")) {
            Some(error) => Err(failed(error)),
            None => Ok(answer),
        }
    }

    /// A lease of so many seconds; its number.
    ///
    /// # Errors
    /// No endpoint answers.
    pub fn grant(&self, seconds: u64) -> Result<i64> {
        let answer = self.call("/v3/lease/grant", &json!({ "TTL": seconds.to_string() }))?;
        Ok(number(&answer, "ID"))
    }

    /// Renews a lease; false if it has ended.
    ///
    /// # Errors
    /// No endpoint answers.
    pub fn keep_alive(&self, lease: i64) -> Result<bool> {
        let answer = self.call("/v3/lease/keepalive", &json!({ "ID": lease.to_string() }))?;
        Ok(number(&answer["result"], "TTL") > 0)
    }

    /// Ends a lease, and takes the keys under it away.
    ///
    /// # Errors
    /// No endpoint answers.
    pub fn revoke(&self, lease: i64) -> Result<()> {
        self.call("/v3/lease/revoke", &json!({ "ID": lease.to_string() }))
            .map(drop)
    }

    /// All keys that begin with a prefix, and the revision that they are of. It is
    /// linearizable: etcd's leader has confirmed it.
    ///
    /// # Errors
    /// No endpoint answers.
    pub fn read(&self, prefix: &str) -> Result<(i64, Vec<Entry>)> {
        let body = json!({ "key": encoded(prefix), "range_end": encoded_end(prefix) });
        let answer = self.call("/v3/kv/range", &body)?;
        let entry = |entry: &Value| {
            Some(Entry {
                key: String::from_utf8(decoded(entry.get("key")?)?).ok()?,
                value: entry.get("value").map_or(Some(Vec::new()), decoded)?,
                created: number(entry, "create_revision"),
                changed: number(entry, "mod_revision"),
            })
        };
        let entries = answer["kvs"].as_array().map_or(&[][..], Vec::as_slice);
        let entries = entries.iter().filter_map(entry).collect();
        Ok((number(&answer["header"], "revision"), entries))
    }

    /// Makes all changes if all comparisons hold; whether they did.
    ///
    /// # Errors
    /// No endpoint answers: the changes may have been made.
    pub fn transact(&self, compares: &[Compare], changes: &[Change]) -> Result<bool> {
        let compares: Vec<Value> = compares.iter().map(comparison).collect();
        let changes: Vec<Value> = changes.iter().map(change).collect();
        let answer = self.call(
            "/v3/kv/txn",
            &json!({ "compare": compares, "success": changes }),
        )?;
        Ok(answer["succeeded"] == json!(true))
    }

    /// Calls `changed` whenever a key that begins with a prefix has changed, until it answers
    /// false, or the connection is lost.
    ///
    /// # Errors
    /// The connection is lost, or took longer than `patience`.
    pub fn watch(
        &self,
        prefix: &str,
        patience: Duration,
        mut changed: impl FnMut() -> bool,
    ) -> Result<()> {
        let place = self.preferred.load(Ordering::Relaxed);
        let endpoint = &self.endpoints[place];
        let failed = |error: &dyn std::fmt::Display| Error(format!("{endpoint}: {error}"));
        let body = json!({ "create_request": {
            "key": encoded(prefix), "range_end": encoded_end(prefix),
        } });
        let request = self.request(format!("{endpoint}/v3/watch"));
        let response = request
            .config()
            .timeout_global(Some(patience))
            .build()
            .send(body.to_string().as_bytes())
            .map_err(|error| failed(&error))?;
        let lines = BufReader::new(response.into_body().into_reader()).lines();
        for line in lines {
            let line = line.map_err(|error| failed(&error))?;
            if line.contains("\"events\"") && !changed() {
                break;
            }
        }
        Ok(())
    }
}

fn comparison(compare: &Compare) -> Value {
    let of = |key: &str, target: &str, field: &str, value: i64| json!({ "key": encoded(key), "result": "EQUAL", "target": target, field: value.to_string() });
    match compare {
        Compare::Missing(key) => of(key, "CREATE", "create_revision", 0),
        Compare::Created(key, at) => of(key, "CREATE", "create_revision", *at),
        Compare::Changed(key, at) => of(key, "MOD", "mod_revision", *at),
    }
}

fn change(change: &Change) -> Value {
    match change {
        Change::Put(key, value, lease) => json!({ "request_put": {
            "key": encoded(key),
            "value": STANDARD.encode(value),
            "lease": lease.unwrap_or(0).to_string(),
        } }),
        Change::Delete(key) => json!({ "request_delete_range": { "key": encoded(key) } }),
    }
}

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// The end of the range of all keys with a prefix: the prefix with its last byte one higher.
fn encoded_end(prefix: &str) -> String {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    STANDARD.encode(end)
}

fn decoded(value: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(value.as_str()?).ok()
}

/// A number, which the gateway writes as a string, and leaves out if it is 0.
fn number(value: &Value, field: &str) -> i64 {
    let text = value.get(field).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_and_a_silent_endpoint_is_named() {
        let patience = Duration::from_millis(200);
        let none = Access::default();
        assert!(Etcd::new(&[], &none, patience).is_err());
        assert!(Etcd::new(&["127.0.0.1:2379".into()], &none, patience).is_err());
        let secured = ["https://127.0.0.1:2379".to_string()];
        let mut access = none.clone();
        for (option, part) in [
            ("--etcd-ca", 0),
            ("--etcd-ca /none", 1),
            ("belong together", 2),
        ] {
            match part {
                1 => access.ca = Some("/none".into()),
                2 => (access.ca, access.user) = (Some(file!().into()), Some("oak".into())),
                _ => {}
            }
            let endpoints = [secured[0].clone(), "http://127.0.0.1:1".into()];
            let endpoints = if part == 2 {
                &endpoints[1..]
            } else {
                &endpoints[..]
            };
            let error = Etcd::new(endpoints, &access, patience).unwrap_err();
            assert!(error.0.contains(option), "{error}");
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let etcd = Etcd::new(std::slice::from_ref(&address), &none, patience).unwrap();
        let error = etcd.read("/cambium/").unwrap_err();
        assert!(error.to_string().contains(&address), "{error}");
    }

    #[test]
    fn a_prefix_ends_before_the_next() {
        assert_eq!(encoded_end("/a/"), STANDARD.encode("/a0"));
        let answer = json!({ "ID": "7" });
        assert_eq!((number(&answer, "ID"), number(&answer, "TTL")), (7, 0));
    }
}
