//! Fsyncs that wait for a record of the log, and one thread that makes it for all of them.
//!
//! What an fsync is to make durable is prepared by then ([`yore_fs::View::prepare_fsync`]); what is left is
//! the same for all of them: a record, and a flush. The first thread that comes *leads*: it makes the record
//! and answers. A thread that comes while another leads leaves its request there and goes on to serve others.
//! The leader takes all that were left during its last record, makes one record for them, answers them, and
//! so on until none is left. So at most one thread waits for the device here, however many callers wait, and
//! none is woken to learn that its record is there. A caller that is alone pays nothing: its own thread
//! leads, and finds nobody else.
//!
//! - **S1** A record begins after the requests that it answers were left. So it has what they wait for.
//! - **S2** Each request is answered once, with the outcome of its own record: [`Syncs::serve`] hands each to
//!   `answer` or leaves it to a leader, and leading ends only in the instant in which none is left.
//! - **S3** If the leader panics, nobody is told that a request succeeded: those that it had taken, and those
//!   that were left, are dropped, which answers EIO.

use parking_lot::Mutex;
use yore_fs::Result;

/// Requests of type `R` that wait for a record.
pub(super) struct Syncs<R> {
    state: Mutex<State<R>>,
}

struct State<R> {
    leads: bool,
    left: Vec<R>,
}

/// The right to lead.
struct Lead<'a, R>(&'a Syncs<R>);

impl<R> Drop for Lead<'_, R> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.state.lock();
            state.leads = false;
            let left = std::mem::take(&mut state.left);
            drop(state);
            drop(left);
        }
    }
}

impl<R> Default for Syncs<R> {
    fn default() -> Syncs<R> {
        Syncs { state: Mutex::new(State { leads: false, left: Vec::new() }) }
    }
}

impl<R> Syncs<R> {
    /// Has `request` answered with the outcome of a `force` of it and others that begins after this call.
    /// Either this thread does it before it returns, and answers others as well, or it returns at once and
    /// another thread, which is in here, does it. All who call this pass the same functions.
    pub(super) fn serve(
        &self,
        request: R,
        force: impl Fn(&[R]) -> Result<()>,
        answer: impl Fn(R, Result<()>),
    ) {
        let mut state = self.state.lock();
        state.left.push(request);
        if std::mem::replace(&mut state.leads, true) {
            return;
        }
        let _lead = Lead(self);
        loop {
            let taken = std::mem::take(&mut state.left);
            if taken.is_empty() {
                state.leads = false;
                return;
            }
            drop(state);
            let outcome = force(&taken);
            taken.into_iter().for_each(|request| answer(request, outcome.clone()));
            state = self.state.lock();
        }
    }

    /// How many requests were left for the thread that leads.
    #[cfg(test)]
    fn left(&self) -> usize {
        self.state.lock().left.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc::{channel, Receiver, Sender};
    use yore_fs::Error;

    /// A request that tells how it was answered, and says "dropped" if it was not.
    struct Asked(usize, Sender<(usize, String)>);

    impl Asked {
        fn answered(self, outcome: Result<()>) {
            let said = outcome.map_or_else(|error| error.to_string(), |()| "durable".into());
            let _ = self.1.send((self.0, said));
            std::mem::forget(self);
        }
    }

    impl Drop for Asked {
        fn drop(&mut self) {
            let _ = self.1.send((self.0, "dropped".into()));
        }
    }

    fn said(answers: &Receiver<(usize, String)>, count: usize) -> Vec<(usize, String)> {
        let mut said: Vec<_> = answers.iter().take(count).collect();
        said.sort();
        said
    }

    /// While one thread waits for the device, all others come and go, and the next record is for all of them.
    #[test]
    fn those_who_come_during_a_record_share_the_next() {
        let syncs = Syncs::default();
        let (tell, answers) = channel();
        let (begun, begins) = channel();
        let (go, gate) = channel();
        let gate = Mutex::new(gate);
        let records = AtomicUsize::new(0);
        let force = |_: &[Asked]| {
            records.fetch_add(1, SeqCst);
            begun.send(()).unwrap();
            gate.lock().recv().unwrap();
            Ok(())
        };
        std::thread::scope(|scope| {
            scope.spawn(|| syncs.serve(Asked(0, tell.clone()), force, Asked::answered));
            begins.recv().unwrap();
            // This thread would wait for ever if it had to wait for the device.
            for number in 1..=32 {
                syncs.serve(
                    Asked(number, tell.clone()),
                    |_: &[Asked]| unreachable!("another leads"),
                    Asked::answered,
                );
            }
            assert!(answers.try_recv().is_err() && syncs.left() == 32);
            go.send(()).unwrap();
            assert_eq!(said(&answers, 1), [(0, "durable".into())]);
            begins.recv().unwrap();
            assert!(answers.try_recv().is_err(), "they came after the first record had begun");
            go.send(()).unwrap();
            let all: Vec<_> = (1..=32).map(|number| (number, "durable".to_string())).collect();
            assert_eq!(said(&answers, 32), all);
        });
        assert_eq!(records.load(SeqCst), 2);
        syncs.serve(Asked(7, tell.clone()), |_: &[Asked]| Ok(()), Asked::answered);
        assert_eq!(said(&answers, 1), [(7, "durable".into())], "the next one leads itself");
    }

    /// An error reaches those whose record failed and nobody else.
    #[test]
    fn an_error_reaches_those_whose_record_failed() {
        let syncs = Syncs::default();
        let (tell, answers) = channel();
        let records = AtomicUsize::new(0);
        let force = |_: &[Asked]| match records.fetch_add(1, SeqCst) {
            // Two come while the first record is made.
            0 => {
                for number in 1..=2 {
                    let leads = |_: &[Asked]| unreachable!("another leads");
                    syncs.serve(Asked(number, tell.clone()), leads, Asked::answered);
                }
                Ok(())
            }
            1 => Err(Error::NoSpace),
            _ => Ok(()),
        };
        syncs.serve(Asked(0, tell.clone()), force, Asked::answered);
        syncs.serve(Asked(3, tell.clone()), force, Asked::answered);
        let failed = Error::NoSpace.to_string();
        let durable = || "durable".to_string();
        assert_eq!(said(&answers, 4), [(0, durable()), (1, failed.clone()), (2, failed), (3, durable())]);
    }

    /// If the thread that leads panics, nobody is told that what it asked for is durable, nobody waits for
    /// ever, and nobody has to come for the others to be answered.
    #[test]
    fn a_panic_leaves_nobody_waiting() {
        let syncs = Syncs::default();
        let (tell, answers) = channel();
        let force = |_: &[Asked]| -> Result<()> {
            syncs.serve(Asked(1, tell.clone()), |_: &[Asked]| unreachable!("another leads"), Asked::answered);
            panic!("a contradiction")
        };
        let lead = || syncs.serve(Asked(0, tell.clone()), force, Asked::answered);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(lead)).is_err());
        assert_eq!(said(&answers, 2), [(0, "dropped".into()), (1, "dropped".into())]);
        assert_eq!(syncs.left(), 0);
    }

    /// Many threads, each of which asks again and again, each time for one answer.
    #[test]
    fn each_is_answered_once() {
        let syncs = Syncs::default();
        let answered = AtomicUsize::new(0);
        let records = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (syncs, answered, records) = (&syncs, &answered, &records);
                scope.spawn(move || {
                    let (tell, answers) = channel();
                    for i in 0..500 {
                        let number = thread * 1000 + i;
                        let force = |_: &[Asked]| {
                            records.fetch_add(1, SeqCst);
                            std::thread::yield_now();
                            Ok(())
                        };
                        syncs.serve(Asked(number, tell.clone()), force, Asked::answered);
                        assert_eq!(answers.recv().unwrap(), (number, "durable".into()));
                        answered.fetch_add(1, SeqCst);
                    }
                    assert!(answers.try_recv().is_err());
                });
            }
        });
        assert_eq!(answered.load(SeqCst), 4000);
        assert!(records.load(SeqCst) <= 4000 && syncs.left() == 0);
    }
}
