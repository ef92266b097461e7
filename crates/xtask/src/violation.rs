//! What a rule reports: a place, what is wrong there, and the remedy.

use std::fmt;

/// Whether a violation fails the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Fails `make test`.
    Error,
    /// Is printed, and grows into an error if it is let go.
    Warning,
}

/// One broken rule. Orders by place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The file, relative to the workspace.
    pub path: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// What is there.
    pub what: String,
    /// What to do instead.
    pub remedy: String,
    /// Whether it fails the check.
    pub severity: Severity,
}

impl Violation {
    /// A violation that fails the check.
    pub fn error(
        path: &str,
        line: usize,
        rule: &'static str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Violation {
            path: path.to_string(),
            line,
            rule,
            what: what.into(),
            remedy: remedy.into(),
            severity: Severity::Error,
        }
    }

    /// The same, only printed.
    #[must_use]
    pub fn as_warning(self) -> Self {
        Violation {
            severity: Severity::Warning,
            ..self
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{}", self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(
            f,
            ": {severity} [{}] {}; {}",
            self.rule, self.what, self.remedy
        )
    }
}
