//! Opening and closing a volume, what an open volume does by itself, and how much room it has.

use crate::file::{Tidied, Tidying};
use crate::history::policy;
use crate::history::reclaim::{references, spans};
use crate::history::record::Most;
use crate::store::Store;
use crate::types::Behalf;
use crate::{file, Error, MountOptions, Result, Statfs};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use yore_core::datacache::WriteBack;
use yore_device::Device;
use yore_format::{BLOCK_SIZE, NAME_MAX};
use yore_meta::{Durability, Meta, MetaError, MetaOptions, ZonesLaid};

/// How often attributes that only aged in memory are written.
const TICK: Duration = Duration::from_secs(5);
/// How often a scattered stretch of 4 MiB is laid together, 32 MiB/s, or a few zones.
const STRETCH_PAUSE: Duration = Duration::from_millis(125);
/// How often somebody looks again after a request was in the way.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// After how long without a request it is found out what each snapshot holds.
const SUMS_AFTER: Duration = Duration::from_secs(1);
/// For how long somebody does that at a time; then others may need the processor.
const SUMS_STEP: Duration = Duration::from_millis(20);

/// How many blocks housekeeping discards at a time: 256 MiB.
const DISCARDED_MOST: u64 = (256 << 20) / BLOCK_SIZE as u64;

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(run);
    thread.map_err(|e| Error::Refused(format!("cannot start a thread: {e}")))
}

impl WriteBack for Store {
    fn round(&self, stop: &dyn Fn() -> bool) -> Result<()> {
        file::round(self, stop)
    }
}

impl Store {
    /// Opens the volume on `device`, frees what a crash left half-freed, and starts the background threads.
    pub(crate) fn open(device: Arc<dyn Device>, options: &MountOptions) -> Result<Arc<Store>> {
        let meta_options = MetaOptions {
            read_only: options.read_only,
            engine: options.engine,
            cache_bytes: options.metadata_cache,
            commit_interval: options.commit_interval,
            durability: options.durability,
            log: options.journal.clone(),
            part_leaves: options.part_leaves,
        };
        let meta = match Meta::open(device.clone(), meta_options.clone()) {
            Err(MetaError::RecoverFirst { recorded }) => {
                // First under its own engine (R5); then the engine that the caller wants finds nothing to
                // recover.
                let durability = Durability::Async;
                let own = MountOptions { engine: Some(recorded), durability, ..options.clone() };
                Store::open(device.clone(), &own)?.close()?;
                Meta::open(device, meta_options)?
            }
            other => other?,
        };
        let store = Arc::new(Store::of(meta, options)?);
        let recovered = store.meta.take_recovered();
        if recovered.is_none() {
            spans::hint::load(&store);
        }
        if let Some(recovered) = recovered {
            file::restore(&*store, &recovered.files)?;
            if !store.read_only {
                file::flush_all(&*store)?;
                store.meta.finish_recovery()?;
            }
        }
        if !store.read_only {
            crate::ops::reap::reclaim_all(&store)?;
            references::begin_annals(&store)?;
            store.meta.leave_gaps()?;
            let weak: Weak<Store> = Arc::downgrade(&store);
            let weak: Weak<dyn WriteBack> = weak;
            store.files.start(weak)?;
            policy::start(&store)?;
            store.past.set_indexer(&store.tick);
            store.start_ticker()?;
        }
        Ok(store)
    }

    fn start_ticker(self: &Arc<Self>) -> Result<()> {
        let (weak, tick) = (Arc::downgrade(self), self.tick.clone());
        let mut done = Instant::now();
        let (mut tidying, mut pause) = (Tidying::default(), TICK);
        let run = move || loop {
            let wait = match Weak::upgrade(&weak) {
                Some(store) => store.due.next().map_or(TICK, |next| next.min(TICK)).min(pause),
                None => return,
            };
            let mut stop = tick.0.lock();
            if !*stop {
                tick.1.wait_for(&mut stop, wait);
            }
            if *stop {
                return;
            }
            drop(stop);
            let Some(store) = Weak::upgrade(&weak) else { return };
            store.index_in_background();
            store.met.record(&store.meta);
            if let Err(e) = spans::keep_up(&store, store.idle.lasts() >= SUMS_AFTER) {
                tracing::warn!("what each snapshot holds is not known any more: {e}");
            }
            pause = store.tidy_in_background(&mut tidying).min(store.sum_in_background());
            pause = pause.min(store.lay_zones_in_background());
            let is_due = store.due.next().is_some_and(|next| next.is_zero());
            if !is_due && done.elapsed() < TICK {
                // It was woken for the rows alone.
                continue;
            }
            done = Instant::now();
            // An event that damage prevents is tried again and again; the rest does not wait for it.
            let taken = policy::take_due_events(&store);
            let kept = policy::retain_in_time(&store)
                .and_then(|()| crate::ops::reap::free_set_aside(&store))
                .and_then(|()| store.flush_aged())
                .and_then(|()| store.alloc.give_back_tables(&store.meta, None))
                .and_then(|()| store.alloc.give_back_zones(&store.meta))
                .and_then(|()| store.discard_in_background())
                .and_then(|()| store.forget_in_background());
            for e in [taken, kept].into_iter().filter_map(Result::err) {
                tracing::warn!("housekeeping: {e}");
            }
        };
        *self.ticker.lock() = Some(spawn("yore-tick", run)?);
        Ok(())
    }

    /// Gives all rows of history their keys, unless the volume is being closed.
    fn index_in_background(&self) {
        if self.past.may_have_unended.load(Ordering::Acquire) {
            // The first change looks for rows that must not get keys.
            return;
        }
        let stop = || *self.tick.0.lock();
        match self.past.index_all(self, &stop) {
            // Room is made by calls that need some.
            Ok(()) | Err(Error::NoSpace) => {}
            Err(e) => tracing::warn!("history is not indexed: {e}"),
        }
    }

    /// Discards a part of what has become free, if that was asked for.
    fn discard_in_background(&self) -> Result<()> {
        let go_on = || !*self.tick.0.lock() && self.meta.check_writable().is_ok();
        self.alloc.discard_freed(&self.meta, DISCARDED_MOST, &go_on);
        Ok(())
    }

    /// After how long somebody looks again whether nobody has asked for anything for a while; `None` if that
    /// is so now.
    fn until_idle(&self) -> Option<Duration> {
        let Some(after) = self.defragment_after else { return Some(TICK) };
        let lasts = self.idle.lasts();
        (lasts < after).then(|| (after - lasts).max(STRETCH_PAUSE))
    }

    /// Lays one stretch of a scattered file together, if nobody has asked for anything for a while. Returns
    /// after how long this is to be called again.
    fn tidy_in_background(&self, tidying: &mut Tidying) -> Duration {
        if self.files.scattered.is_empty() {
            return TICK;
        }
        if let Some(pause) = self.until_idle() {
            return pause;
        }
        let stop = || self.idle.is_over() || *self.tick.0.lock();
        match file::tidy(self, tidying, &stop) {
            Ok(Tidied::Step) => STRETCH_PAUSE,
            Ok(Tidied::Busy) => BUSY_PAUSE,
            Ok(Tidied::Nothing | Tidied::NoRoom) => TICK,
            Err(e) => {
                tracing::warn!("laying a scattered file together: {e}");
                TICK
            }
        }
    }

    /// Lays a few zones together whose blocks lie apart, or looks for some, if nobody has asked for anything
    /// for a while. Returns after how long this is to be called again.
    ///
    /// What has been changed goes to the medium first, by itself. Nothing is done beside a check or a scrub.
    fn lay_zones_in_background(&self) -> Duration {
        if !self.meta.zones_may_lie_apart() {
            return TICK;
        }
        if let Some(pause) = self.until_idle() {
            return pause;
        }
        if self.meta.has_unwritten_changes() || *self.inspections.0.lock() > 0 {
            return BUSY_PAUSE;
        }
        let stop = || self.idle.is_over() || *self.tick.0.lock();
        match self.meta.lay_zones_together(&stop) {
            Ok(ZonesLaid::Examined | ZonesLaid::Zones { .. }) => STRETCH_PAUSE,
            Ok(ZonesLaid::Busy) => BUSY_PAUSE,
            Ok(ZonesLaid::Nothing) => TICK,
            // Whoever changes something is told.
            Err(_) if self.meta.check_writable().is_err() => TICK,
            Err(e) => {
                tracing::warn!("laying metadata together: {e}");
                TICK
            }
        }
    }

    /// Finds out a part of what each snapshot holds, if nobody knows that and nobody has asked for anything
    /// for a while. Returns after how long this is to be called again.
    fn sum_in_background(self: &Arc<Self>) -> Duration {
        if self.idle.lasts() < SUMS_AFTER {
            return TICK;
        }
        match spans::make_ahead(self, SUMS_STEP) {
            Ok(true) => STRETCH_PAUSE,
            Ok(false) => TICK,
            Err(e) => {
                tracing::warn!("finding out what each snapshot holds: {e}");
                TICK
            }
        }
    }

    /// Goes on with forgetting, if there is any to do and nobody does it yet.
    fn forget_in_background(self: &Arc<Self>) -> Result<()> {
        let mut forgetter = self.forgetter.lock();
        let at_it = forgetter.as_ref().is_some_and(|thread| !thread.is_finished());
        if at_it || !self.past.is_forgetting() {
            return Ok(());
        }
        let (weak, tick) = (Arc::downgrade(self), self.tick.clone());
        let run = move || {
            let Some(store) = Weak::upgrade(&weak) else { return };
            let ask = &mut |_: &_| match *tick.0.lock() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            if let Err(e) = crate::history::reclaim::forget::finish(&store, ask) {
                tracing::warn!("forgetting stopped, and goes on later: {e}");
            }
        };
        *forgetter = Some(spawn("yore-forget", run)?);
        Ok(())
    }

    /// The space of the volume. Whatever it promises can be written.
    pub(crate) fn statfs(self: &Arc<Self>, behalf: Behalf) -> Statfs {
        self.settle_set_aside();
        let free = self.alloc.free_blocks();
        let can_go = match self.read_only {
            true => Ok(Most::default()),
            false => crate::history::reclaim::room::quick(self, behalf),
        };
        let can_go = can_go.unwrap_or_else(|error| {
            tracing::warn!("what history takes that could be given up is not known: {error}");
            Most::default()
        });
        let available = self.alloc.available(&self.meta, can_go.data);
        let used = self.meta.totals.inodes.get();
        let history = self.past.space();
        // A zone of 4 MiB holds 510 blocks of 16 inodes.
        let possible = available / 1024 * 510 * 16 + self.meta.free_index_estimate() * 16;
        Statfs {
            block_size: BLOCK_SIZE as u32,
            blocks: self.meta.geometry().blocks,
            blocks_free: free,
            blocks_available: available.min(free.saturating_add(can_go.data)),
            inodes: used + possible,
            inodes_free: possible,
            name_max: NAME_MAX as u32,
            history_data_blocks: history.data,
            history_metadata_blocks: history.nodes,
            history_index_blocks: history.trees,
        }
    }

    /// Writes everything, frees the files without a name, and marks the volume clean. Later calls do nothing.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // Checks and scrubs have seen that it is closed, and end soon, with what they have to record.
        let (under_way, changed) = &self.inspections;
        let mut under_way = under_way.lock();
        while *under_way > 0 {
            changed.wait(&mut under_way);
        }
        drop(under_way);
        let before = std::mem::take(&mut *self.before_close.lock());
        before.into_iter().for_each(|end| end());
        *self.tick.0.lock() = true;
        self.tick.1.notify_all();
        for (thread, what) in [(&self.ticker, "housekeeping"), (&self.forgetter, "forgetting")] {
            let thread = thread.lock().take();
            if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
                if thread.join().is_err() {
                    tracing::error!("the {what} thread panicked");
                }
            }
        }
        if self.read_only {
            return Ok(());
        }
        self.files.stop();
        self.met.record(&self.meta);
        // Goes on if some file cannot be freed or written: what can be written is written.
        let mut freed = crate::ops::reap::free_set_aside(self);
        for cell in self.inodes.select(|c| c.unlinked.load(Ordering::Acquire)) {
            freed = freed.and(match crate::ops::reap::reclaim(self, &cell) {
                Err(Error::NoSpace) => {
                    tracing::warn!("there is no room to free inode {}: the next mount does", cell.no);
                    Ok(())
                }
                other => other,
            });
        }
        let flushed = file::flush_all(&**self)
            .and_then(|()| self.flush_aged())
            .and_then(|()| self.alloc.give_back_tables(&self.meta, None))
            .and_then(|()| self.alloc.give_back_zones(&self.meta));
        let indexed = match self.past.may_have_unended.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.past.index_all(self, &|| false),
        };
        let indexed = match indexed {
            Err(Error::NoSpace) => Ok(()),
            other => other,
        };
        let closed = spans::hint::close(self);
        if closed.is_ok() {
            self.alloc.discard_freed(&self.meta, u64::MAX, &|| true);
        }
        freed.and(flushed).and(indexed)?;
        closed
    }
}
