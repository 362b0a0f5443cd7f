//! Requests that wait until something is durable: who waits for the device, and who answers.
//!
//! An fsync has two halves. The first puts what is to become durable where a record of the log finds it,
//! which is work in memory unless there is much data; the thread that serves the request does it. The second
//! half is the record and the flush, or what takes their place under an engine without a log: it is made for
//! many requests at once
//! ([`super::syncs`]). Where the first half waits for the device as well, it is done by this thread while
//! enough others read requests, and otherwise by others ([`super::flushers`]).
//!
//! An error of the first half is that of its file and reaches its caller alone. An error of the second half
//! reaches all whose record failed. What a request asks for is decided when it is read, so the answer needs
//! neither the caller nor the request.

use super::server::Server;
use super::waiting::Waiting;
use yore_fs::{InodeNo, Result, View};

/// How many threads have to be free, apart from the one that is about to wait for the device.
const FREE: usize = 2;

/// The second half, for all of these.
fn force(view: &View, waiting: &[Waiting]) -> Result<()> {
    let inodes: Vec<InodeNo> = waiting.iter().map(|waiting| waiting.inode).collect();
    view.force_files(&inodes)
}

impl Server {
    /// Makes an inode durable, as [`View::fsync`], and has the request answered then: by this thread before
    /// it returns, or by another.
    pub(super) fn make_durable(&self, view: &View, data_only: bool, waiting: Waiting) {
        let inode = waiting.inode;
        // All who share a record ask for it through a view that can make one.
        if view.read_only() {
            return waiting.end(Ok(()));
        }
        match view.try_prepare_fsync(inode, data_only) {
            Ok(true) => self.syncs.serve(waiting, |waiting| force(view, waiting), Waiting::end),
            Ok(false) => {
                let syncs = self.syncs.clone();
                self.wait_for_device(view, move |view| match view.prepare_fsync(inode, data_only) {
                    Ok(()) => syncs.serve(waiting, |waiting| force(view, waiting), Waiting::end),
                    Err(error) => waiting.end(Err(error)),
                });
            }
            Err(error) => waiting.end(Err(error)),
        }
    }

    /// Makes everything durable, as [`View::sync`], and has the request answered then.
    pub(super) fn make_all_durable(&self, view: &View, waiting: Waiting) {
        self.wait_for_device(view, |view| waiting.end(view.sync()));
    }

    /// Does what waits for the device: here, while enough threads read requests.
    fn wait_for_device(&self, view: &View, work: impl FnOnce(&View) + Send + 'static) {
        if self.free_threads() >= FREE.min(self.config.threads.max(1) - 1) {
            return work(view);
        }
        let view = view.clone();
        self.flushers.hand_over(move || work(&view));
    }
}
