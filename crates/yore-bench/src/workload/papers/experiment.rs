//! The experiments of the papers, each drawn as a [`Script`].

use super::scale::Scale;
use super::{build, curves, dbench, many, mixes, news, shell, streams};
use crate::workload::postmark::PostMark;
use crate::workload::script::Script;
use crate::Result;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// An experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Experiment {
    /// Creating, reading, writing and deleting files, by their size.
    Curves,
    /// Empty files, each created and at once deleted.
    Empty,
    /// 100,000 empty files created and deleted, three times.
    Files,
    /// PostMark as its author had it.
    PostmarkSmall,
    /// PostMark as for metadata snapshotting.
    PostmarkMedium,
    /// PostMark on 150,000 files.
    PostmarkLarge,
    /// The load of dbench by 1 to 32 clients.
    Dbench,
    /// Unpacking, configuring and building a package.
    Ssh,
    /// A news server that receives articles and expires old ones.
    Netnews,
    /// Scripts of people who develop programs, several at once.
    Sdet,
    /// Copying, looking through and building a source tree, in five phases.
    Andrew,
    /// A large file: written, rewritten, read, read at random places.
    Streams,
    /// Filebench's file server.
    Fileserver,
    /// Filebench's web server.
    Webserver,
    /// Filebench's mail server.
    Varmail,
}

impl Experiment {
    /// All of them, in the order of reports.
    pub const ALL: &[Experiment] = Experiment::VARIANTS;

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The experiment of that name.
    pub fn from_name(name: &str) -> Option<Experiment> {
        name.parse().ok()
    }

    /// The heading of a table of it: what is measured, and on which disk.
    pub(super) fn heading(self, table: &str, disk: &str) -> String {
        match table {
            "" => format!("{}: {disk}", self.name()),
            table => format!("{}, {table}: {disk}", self.name()),
        }
    }

    /// The bytes of metadata and of data that memory may hold; `None` if the default is for all that there
    /// is. What the papers measured beyond the size of their caches is measured beyond these.
    pub(super) fn caches(self, scale: &Scale) -> Option<(u64, u64)> {
        match self {
            Experiment::Netnews => {
                Some(((4 << 20) + scale.news as u64 * 64, (8 << 20) + scale.news as u64 * 512))
            }
            _ => None,
        }
    }

    /// What it does.
    ///
    /// # Errors
    /// [`NotInstalled`](crate::BenchError::NotInstalled) if a load that a package has is not there.
    pub(crate) fn script(self, scale: &Scale) -> Result<Script> {
        let postmark = |options: PostMark| {
            let small = options.scaled(|full| scale.of(full, 100));
            small.script()
        };
        Ok(match self {
            Experiment::Curves => curves::script(scale),
            Experiment::Empty => many::empty(scale),
            Experiment::Files => many::thrice(scale),
            Experiment::PostmarkSmall => postmark(PostMark::small()),
            Experiment::PostmarkMedium => postmark(PostMark::default()),
            Experiment::PostmarkLarge => postmark(PostMark::large()),
            Experiment::Dbench => dbench::script(scale)?,
            Experiment::Ssh => build::package(scale),
            Experiment::Netnews => news::script(scale),
            Experiment::Sdet => shell::script(scale),
            Experiment::Andrew => build::andrew(scale),
            Experiment::Streams => streams::script(scale),
            Experiment::Fileserver => mixes::fileserver(scale),
            Experiment::Webserver => mixes::webserver(scale),
            Experiment::Varmail => mixes::varmail(scale),
        })
    }
}
