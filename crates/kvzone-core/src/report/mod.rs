//! What people read of a measurement.
//!
//! The JSON ([`crate::record`]) has every figure of every round; the parts
//! here say what follows from them, on a terminal and as a page.
//!
//! | module | what it holds |
//! |---|---|
//! | [`summary`] | a row a store: medians over rounds; ratios and whether they hold |
//! | [`advice`] | candidates ranked, and what would change the answer |
//! | [`recovery`] | time to open again, and what survived a kill |
//! | [`compare`] | two reports beside each other: better, worse, or nobody knows |
//! | [`terminal`] | the summary as a table |
//! | [`html`] | one page without outside links |
//! | [`grid`] | a table as text, Markdown and HTML |
//! | [`chart`] | its charts, as SVG |
//! | [`charts`] | which charts a workload has |
//! | [`text`] | figures as people read them |

pub mod advice;
pub mod chart;
pub mod charts;
pub mod compare;
pub mod grid;
pub mod html;
pub mod recovery;
pub mod summary;
pub mod terminal;
pub mod text;
