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
//! | [`figure`] | the figures of a run, for all that follow |
//! | [`compare`] | two reports beside each other: better, worse, or nobody knows |
//! | [`table`] | summaries as a table |
//! | [`html`] | the page of a report, as text too |
//! | [`grid`] | a table as text, Markdown and HTML |
//! | [`charts`] | which charts a workload has |
//! | [`page`] | blocks and charts of a page without outside links |
//! | [`svg`] | one chart as a file |
//! | [`text`] | figures as people read them |

pub mod advice;
pub mod charts;
pub mod compare;
pub mod figure;
pub mod grid;
pub mod html;
pub mod page;
pub mod recovery;
pub mod summary;
pub mod svg;
pub mod table;
pub mod text;
