//! `tree`: a developer's daily work, with real programs on real source trees; wall time of each phase.
//!
//! The sources are those of the system tests (`scripts/fetch-sources.sh DIR`): LuaJIT's, which is built, and
//! libgit2's. Two things are made from them once, on the host: a bare repository whose second revision
//! changes, removes and adds files in the first; and a tar archive. Each round then clones, checks the first
//! revision out, asks for the status, unpacks, builds with the package's own makefiles, and removes all three
//! trees.
//!
//! Programs need paths, so the library cannot take part.

use super::steps::timed;
use crate::compare::{Benchmark, Subject};
use crate::program::{command, run};
use crate::report::Column;
use crate::rival::{make_directory, RivalKind};
use crate::{BenchError, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Real programs on real source trees.
#[derive(Debug)]
pub struct Tree {
    sources: PathBuf,
    /// Removed with this value.
    made: tempfile::TempDir,
    files: usize,
}

const PHASES: [&str; 6] = ["git clone", "git checkout", "git status", "tar -x", "make", "rm -rf"];

impl Tree {
    /// Prepares the repository and the archive in a directory of its own below `work_dir`, from the sources
    /// in `sources`.
    ///
    /// # Errors
    /// [`BenchError::Impossible`] if the sources are not there; [`BenchError::NotInstalled`] for git, tar,
    /// make or a compiler.
    pub fn new(sources: &Path, work_dir: &Path) -> Result<Tree> {
        for (program, package) in [("git", "git"), ("tar", "tar"), ("make", "make"), ("gcc", "gcc")] {
            run(command(program).arg("--version"), package)?;
        }
        let sources = sources.canonicalize().map_err(|_| missing(sources))?;
        let package = find(&sources, "luajit-src-")?.join("luajit2");
        let library = find(&sources, "libgit2-sys-")?;
        let doing = format!("making a directory in {}", work_dir.display());
        let made = tempfile::Builder::new()
            .prefix("yore-bench-sources-")
            .tempdir_in(work_dir)
            .map_err(BenchError::system(doing))?;
        let dir = made.path();
        let tree = dir.join("tree");
        make_directory(&tree)?;
        copy(&library, &tree.join("library"))?;
        copy(&package, &tree.join("package"))?;
        let files = make_repository(&tree, &dir.join("origin.git"))?;
        run(command("tar").arg("-cf").arg(dir.join("sources.tar")).arg("-C").arg(&sources).arg("."), "tar")?;
        fs::remove_dir_all(&tree).map_err(BenchError::system("removing the tree that was archived"))?;
        Ok(Tree { sources, made, files })
    }

    fn phase(&self, phase: usize, at: &Path) -> Result<()> {
        let (clone, unpacked, built) = (at.join("clone"), at.join("unpacked"), at.join("built"));
        match phase {
            0 => {
                let origin = format!("file://{}", self.made.path().join("origin.git").display());
                git(None, &["clone", "-q", &origin], Some(&clone))
            }
            1 => git(Some(&clone), &["checkout", "-q", "--detach", "HEAD~1"], None),
            2 => git(Some(&clone), &["status", "--porcelain"], None),
            3 => {
                make_directory(&unpacked)?;
                let archive = self.made.path().join("sources.tar");
                run(command("tar").arg("-xf").arg(archive).arg("-C").arg(unpacked), "tar").map(drop)
            }
            4 => {
                copy(&find(&self.sources, "luajit-src-")?.join("luajit2"), &built)?;
                fs::write(built.join(".relver"), "0\n").map_err(BenchError::system("writing .relver"))?;
                let jobs = std::thread::available_parallelism().map_or(1, |n| n.get());
                // Without optimisation: the file system is to work here, not the compiler.
                let arguments = ["-s", &format!("-j{jobs}"), "BUILDMODE=static", "CCOPT=-O0"];
                run(command("make").arg("-C").arg(built).args(arguments), "make").map(drop)
            }
            _ => run(command("rm").arg("-rf").args([clone, unpacked, built]), "coreutils").map(drop),
        }
    }
}

impl Benchmark for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn about(&self) -> String {
        "Real programs on real source trees: wall time.".into()
    }

    fn options(&self) -> Vec<(String, String)> {
        vec![("files in the repository".into(), self.files.to_string())]
    }

    fn tables(&self) -> Vec<(String, Vec<Column>)> {
        vec![(String::new(), PHASES.into_iter().map(Column::time).collect())]
    }

    fn check(&self, kind: RivalKind) -> Result<()> {
        match kind.has_paths() {
            true => Ok(()),
            false => Err(BenchError::impossible("programs need paths", "mount the volume (target mount)")),
        }
    }

    fn round(&self, subject: &mut Subject<'_>, round: usize) -> Result<Vec<Vec<f64>>> {
        let at = subject.0.path()?.join(format!("round{round}"));
        make_directory(&at)?;
        let phases = (0..PHASES.len()).map(|phase| timed(1, |_| self.phase(phase, &at)));
        let times = phases.collect::<Result<Vec<f64>>>()?;
        fs::remove_dir(&at).map_err(BenchError::system("removing the round's directory"))?;
        Ok(vec![times])
    }
}

fn missing(sources: &Path) -> BenchError {
    BenchError::impossible(
        format!("the source trees are not in {}", sources.display()),
        "fetch them with scripts/fetch-sources.sh and give the same directory as --sources",
    )
}

/// The package whose directory begins with `prefix`.
fn find(sources: &Path, prefix: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(sources).map_err(|_| missing(sources))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
        .collect();
    found.sort();
    found.pop().ok_or_else(|| missing(sources))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    run(command("cp").arg("-r").arg(from).arg(to), "coreutils").map(drop)
}

/// Without anybody's configuration, hooks or name.
fn git_command(at: Option<&Path>) -> Command {
    let mut git = command("git");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    for (variable, value) in
        [("NAME", "bench"), ("EMAIL", "bench@localhost"), ("DATE", "2000-01-01T00:00:00Z")]
    {
        git.env(format!("GIT_AUTHOR_{variable}"), value).env(format!("GIT_COMMITTER_{variable}"), value);
    }
    if let Some(at) = at {
        git.arg("-C").arg(at);
    }
    git
}

fn git(at: Option<&Path>, arguments: &[&str], last: Option<&Path>) -> Result<()> {
    run(git_command(at).args(arguments).args(last), "git").map(drop)
}

/// Two revisions of `tree`, cloned bare to `origin`; how many files the second has.
fn make_repository(tree: &Path, origin: &Path) -> Result<usize> {
    let commit = |message: &str| -> Result<()> {
        git(Some(tree), &["add", "-A", "-f"], None)?;
        git(Some(tree), &["commit", "-q", "-m", message], None)
    };
    git(Some(tree), &["init", "-q", "-b", "main"], None)?;
    commit("first")?;
    let listed = run(git_command(Some(tree)).args(["ls-files", "-z"]), "git")?;
    let failed = || BenchError::system("changing the second revision");
    for (index, name) in listed.split('\0').filter(|name| !name.is_empty()).enumerate() {
        let path = tree.join(name);
        match index % 7 {
            0 => fs::remove_file(&path).map_err(failed())?,
            1 | 4 => {
                let mut content = fs::read(&path).map_err(failed())?;
                content.extend_from_slice(b"\nchanged\n");
                fs::write(&path, content).map_err(failed())?;
            }
            3 => {
                let mut other = path.clone().into_os_string();
                other.push(".new");
                fs::copy(&path, other).map(drop).map_err(failed())?;
            }
            _ => {}
        }
    }
    commit("second")?;
    let listed = run(git_command(Some(tree)).args(["ls-files", "-z"]), "git")?;
    git(None, &["clone", "-q", "--bare", &tree.display().to_string()], Some(origin))?;
    Ok(listed.matches('\0').count())
}
