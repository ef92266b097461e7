//! The pass over the old file that deals documents out, a read at a time: while
//! one is dealt the next one is under way.

use cambium_base::Result;

use super::Compaction;
use super::copy::Copying;
use super::deal::Dealing;
use super::fetch::Window;
use crate::core::Core;
use crate::database::Database;

impl Core {
    /// Does a piece of it. Where the scratch file finds no room, copying goes on
    /// without.
    pub(super) fn deal_piece(
        &self,
        compaction: &mut Compaction,
        copying: &mut Copying,
    ) -> Result<()> {
        let Some(mut dealing) = copying.dealing.take() else {
            return Ok(());
        };
        match self.deal(compaction, copying, &mut dealing) {
            Err(error) if error.is_no_space() => {
                // Groups before this one are copied already.
                _ = copying.fetcher.take();
                compaction.pace.end_dealing(1, 1);
                dealing.end();
                Ok(())
            }
            dealt => {
                copying.dealing = Some(dealing);
                dealt
            }
        }
    }

    fn deal(
        &self,
        compaction: &mut Compaction,
        copying: &mut Copying,
        dealing: &mut Dealing,
    ) -> Result<()> {
        let clock = &self.environment.clock;
        let from = compaction.source.view.database.clone();
        let began = clock.monotonic();
        if dealing.is_surveying() {
            dealing.survey(self, &from)?;
            compaction.report.phases.tree_search += (clock.monotonic() - began).as_secs_f64();
            return Ok(());
        }
        if !dealing.is_dealing() {
            dealing.begin_group(copying.next_window);
        }
        let overlap = compaction.settings.tuning.overlap;
        let read = next_read(copying, dealing, &from, overlap)?;
        let began = clock.monotonic();
        let is_done = dealing.deal(&from, read.as_ref())?;
        compaction.report.phases.sort += (clock.monotonic() - began).as_secs_f64();
        if let Some(read) = read {
            let documents = read.plan.documents.iter();
            let bytes: u64 = documents.map(|(address, _)| address.most_bytes()).sum();
            self.note_read(compaction, &read);
            copying.fetcher.recycle(read);
            compaction.pace.note_dealt(bytes);
        }
        if is_done {
            copying.fetcher.forget_buffers();
            let (dealt, windows) = dealing.windows_dealt();
            compaction.pace.end_dealing(dealt, windows);
        }
        Ok(())
    }
}

/// What was read next, and has what comes then read. `None` after the last.
fn next_read(
    copying: &Copying,
    dealing: &mut Dealing,
    from: &Database,
    overlap: bool,
) -> Result<Option<Window>> {
    let fetcher = &copying.fetcher;
    let mut want = || {
        let plan = dealing.next_read(from)?;
        plan.into_iter().for_each(|plan| fetcher.want(plan));
        Ok(())
    };
    if !fetcher.is_busy() {
        want()?;
    }
    let read = fetcher.take()?;
    if overlap && read.is_some() {
        want()?;
    }
    Ok(read)
}
