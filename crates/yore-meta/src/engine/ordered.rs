//! `soft-updates` and `sync`: blocks are written where they are, each change behind those that it waits for
//! (docs/EDGES.md).
//!
//! A generation is a *pass*: it is frozen as under every engine, and then written in rounds with a flush
//! between two (`writer/rounds.rs`). A generation with something that has no order, or that would take too
//! many rounds, is written aside and closes, as under `snapshot`. What is freed is available again when the
//! generation that freed it is complete. The two differ in when calls return: under `soft-updates` at once,
//! under `sync` when what they changed is durable.

use super::strategy::{by_age, Backlog, Due, Pass, Place, Plan, Strategy};
use yore_format::Engine;

#[derive(Debug)]
pub(super) struct SoftUpdates;

#[derive(Debug)]
pub(super) struct Sync;

fn plan(pass: Pass) -> Plan {
    match pass.is_whole {
        true => Plan { blocks: Place::Aside, maps: Place::Aside, closes: true, flushes: true },
        false => Plan { blocks: Place::InOrder, maps: Place::Aside, closes: false, flushes: true },
    }
}

macro_rules! ordered {
    ($name:ident, waits: $waits:expr) => {
        impl Strategy for $name {
            fn engine(&self) -> Engine {
                Engine::$name
            }

            fn logs(&self) -> bool {
                false
            }

            fn logs_first(&self) -> bool {
                false
            }

            fn must_be_checked(&self) -> bool {
                false
            }

            fn orders(&self) -> bool {
                true
            }

            fn calls_wait(&self) -> bool {
                $waits
            }

            fn plan(&self, pass: Pass) -> Plan {
                plan(pass)
            }

            fn due(&self, backlog: Backlog) -> Due {
                by_age(backlog)
            }
        }
    };
}

ordered!(SoftUpdates, waits: false);
ordered!(Sync, waits: true);
